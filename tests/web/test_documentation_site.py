"""The documentation as a site: built strictly, its links, llms.txt, Chromium."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import expect
from werkzeug import Request, Response
from werkzeug.utils import send_from_directory

from scripts.docs_site import ROOT, entries, site_path
from scripts.locked_environment import locked_environment
from tests.commands import run
from tests.http_server import HttpServer
from tests.web.pages import Pages

pytestmark = [pytest.mark.slow, pytest.mark.packaging]


def build(site: Path, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """`make docs`, to another folder. (--quiet would let warnings pass.)"""
    mkdocs = locked_environment("docs") / "bin" / "mkdocs"
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return run(mkdocs, "build", "--strict", "--site-dir", site, cwd=root, env=env)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def url(site: Path) -> Iterator[str]:
    def respond(request: Request) -> Response:
        return send_from_directory(site, request.path.lstrip("/"), request.environ)

    with HttpServer(respond) as server:
        yield server.url


class _Page(HTMLParser):
    def __init__(self, file: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "a":
            self.loaded += [of for name, of in attrs if name in ("href", "src", "srcset") and of]


def test_a_page_loads_nothing_from_another_host(site: Path) -> None:
    for file in site.rglob("*.html"):
        assert not [link for link in _Page(file).loaded if urlsplit(link).netloc], file
    for file in site.rglob("*.css"):
        assert not re.search(r"(url\(\s*[\"']?|@import\s+[\"'])(https?:)?//", file.read_text())


def test_the_index_for_language_models_names_every_page(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[.+?\]\((\S+?)\): \S.+$", text, re.MULTILINE)
    assert listed == [site_path(path) for _, _, path, _ in entries()]
    assert all((site / path).is_file() for path in listed)


def test_a_page_outside_the_navigation_and_a_dead_link_fail_the_build(tmp_path: Path) -> None:
    for name in ("docs", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    (tmp_path / "docs" / "user" / "stray.md").write_text("# Stray\n[dead](nowhere.md)\n")
    done = build(tmp_path / "site", tmp_path)
    assert done.returncode == 1
    assert "user/stray.md" in done.stderr
    assert "nowhere.md" in done.stderr


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
async def test_pages_need_no_other_host(url: str, pages: Pages, scheme: Any, width: int) -> None:
    page = await pages.open(color_scheme=scheme, viewport={"width": width, "height": 800})
    for path in ("user/lag.html", "reference/settings.html", "index.html"):
        await page.goto(f"{url}/{path}", wait_until="networkidle")
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        assert await page.evaluate("getComputedStyle(document.body).colorScheme") == scheme
    picture = page.locator("article img").first
    assert await picture.evaluate("image => image.complete && image.naturalWidth > 0")
    assert scheme in str(await picture.evaluate("image => image.currentSrc"))
    if width < 1000:
        await page.locator("label.md-header__button[for=__search]").click()
    await page.locator("input.md-search__input").press_sequentially("headroom")  # it reads keys
    await expect(page.locator(".md-search-result__item").first).to_contain_text("headroom")
