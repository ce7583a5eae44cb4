"""Kinds of sources are registered before anything goes by them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from sparklag_schemas import GroupSettings, Settings
from sparklag_schemas.messages.enumerations import ORIGINS
from sparklag_service.counters import Counters
from sparklag_service.intakes import SourceContext, delivery_queue, sources

MODULE = """
from sparklag_schemas.messages.enumerations import OriginTraits
from sparklag_service.intakes.sources import SourceKind, register_source

register_source(SourceKind("almanac", lambda _: [], lambda _: 123.0, OriginTraits("an almanac")))
"""


@pytest.fixture
def almanac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another distribution with a source, as if it were installed."""
    (tmp_path / "almanac_source.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    installed = EntryPoint("almanac", "almanac_source", "sparklag.sources")
    monkeypatch.setattr(
        sources, "entry_points", lambda group: [installed] if group == installed.group else []
    )
    sources._kinds.cache_clear()
    yield
    sources._kinds.cache_clear()
    del sources._SOURCES["almanac"], ORIGINS["almanac"], sys.modules["almanac_source"]


@pytest.mark.usefixtures("almanac")
def test_a_source_of_another_distribution_counts_from_the_first_pipeline_on() -> None:
    assert sources.longest_interval_s(Settings().resolved("nowhere:1")) == 123.0
    assert ORIGINS["almanac"].label == "an almanac"


def test_without_one_the_longest_interval_is_that_of_the_settings() -> None:
    assert sources.longest_interval_s(Settings(heartbeat_s=77.0).resolved("nowhere:1")) == 77.0


async def test_without_a_pattern_no_group_is_read() -> None:
    for allow, watchers in (([], 0), ([".*"], 1)):
        settings = Settings(groups=GroupSettings(allow=allow)).resolved("nowhere:1")
        context = SourceContext(settings, delivery_queue(1, Counters()), bool, {})
        assert len(list(sources._SOURCES["group"].make_watchers(context))) == watchers
        assert len(context.group_poll_s) == watchers
