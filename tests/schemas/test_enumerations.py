"""What differs between origins stands in one table, and a new kind of source adds to it."""

from __future__ import annotations

from typing import get_args

import pytest

from sparklag_schemas import Origin
from sparklag_schemas.enumerations import ORIGINS, OriginTraits, register_origin, traits_of


def test_every_origin_that_is_written_has_traits() -> None:
    assert [*ORIGINS] == [*get_args(Origin)]
    assert all(traits.label for traits in ORIGINS.values())


def test_an_unknown_origin_is_treated_as_a_driver_that_reports_batches() -> None:
    assert traits_of("telepathy") == OriginTraits()


def test_another_origin_is_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklag_schemas.enumerations.ORIGINS", dict(ORIGINS))
    flink = OriginTraits("its savepoints", step="checkpoint")
    register_origin("flink", flink)
    register_origin("flink", flink)
    assert traits_of("flink") is flink
    with pytest.raises(ValueError, match="'flink' is registered with other traits"):
        register_origin("flink", OriginTraits())
