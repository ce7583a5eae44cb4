"""Where a program is missing, one line says how to get it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.tools import ToolMissing, stepped_clock_library, toxiproxy_server


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing in PATH, nothing in the cache."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.usefixtures("bare_machine")
def test_without_go_it_says_so() -> None:
    with pytest.raises(ToolMissing, match="install Go") as missing:
        toxiproxy_server(lambda text: None)
    assert "\n" not in str(missing.value)


@pytest.mark.usefixtures("bare_machine")
def test_without_a_compiler_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(ToolMissing, match="apt-get install gcc") as missing:
        stepped_clock_library(tmp_path, lambda text: None)
    assert "\n" not in str(missing.value)
