"""Where programs cannot be got, one line says what to install."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.debian_packages import ProgramsMissing, library_path, unpacked_packages


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "sparklag"


def test_without_debians_tools_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ProgramsMissing, match=r"^install the thing$"):
        unpacked_packages("thing", ["thing"], instead="install the thing")


def test_what_is_in_the_cache_is_not_got_again(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = empty_cache / "thing/unpacked/usr/lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    monkeypatch.setenv("PATH", str(tmp_path))

    unpacked = unpacked_packages("thing", ["thing"], instead="install the thing")

    assert library_path(unpacked) == str(libraries)
