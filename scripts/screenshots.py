"""Draws docs/pictures anew from the demo: the page in both themes, `top`, and the demo itself.

python -m scripts.screenshots [--seconds 600]   (the charts need time to have something to show)
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import time
from io import StringIO
from pathlib import Path
from typing import Final, Literal

from playwright.async_api import Browser
from rich.console import Console
from rich.text import Text

from sparklag_jobs.broker.child_process import free_port
from tests.terminal import Terminal
from tests.web.chromium import running_chromium

PICTURES: Final = Path(__file__).parents[1] / "docs" / "pictures"
_COLUMNS: Final = 110
_ROWS: Final = 30
_TOP_ROWS: Final = 18
_PAGES: Final = {"fleet": "", "query": "q/orders?since=15m"}
_SIZE: Final = {"fleet": (1440, 480), "query": (1440, 1180)}
_TROUBLE_S: Final = 300
"""More often than this one of the demo's queries fails while another is behind."""


def draw(seconds: float) -> None:
    """All pictures, from a demo that has run for so long since its first lag."""
    PICTURES.mkdir(exist_ok=True)
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    command = str(Path(sys.executable).with_name("sparklag"))
    environment = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    with Terminal(
        [command, "demo", "--http-port", str(port)], _COLUMNS, _ROWS, environment
    ) as demo:
        demo.shows("invoices")
        time.sleep(seconds)
        _write_svg("demo", demo.screen(escapes=True))
        with Terminal([command, "top", "--url", url], _COLUMNS, _TOP_ROWS, environment) as top:
            top.shows("orders")
            time.sleep(10)
            _write_svg("top", top.screen(escapes=True))
        asyncio.run(_draw_pages(url))
        demo.press("C-c")
        demo.shows("Next, a query of your own")


def _write_svg(name: str, screen: str) -> None:
    console = Console(record=True, width=_COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(screen.rstrip()), soft_wrap=False)
    svg = console.export_svg(title=f"sparklag {name}")
    # Rich names a font on a foreign host.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    (PICTURES / f"{name}.svg").write_text(svg, encoding="utf-8")


async def _draw_pages(url: str) -> None:
    async with running_chromium() as browser:
        for name, path in _PAGES.items():
            light = _draw_page(browser, f"{url}{path}", name, "light")
            await asyncio.gather(light, _draw_page(browser, f"{url}{path}", name, "dark"))


async def _draw_page(
    browser: Browser, url: str, name: str, theme: Literal["light", "dark"]
) -> None:
    width, height = _SIZE[name]
    page = await browser.new_page(
        color_scheme=theme, viewport={"width": width, "height": height}, timezone_id="UTC"
    )
    await page.goto(url)
    await page.get_by_role("status").get_by_text("live").wait_for()
    await page.wait_for_timeout(3_000)  # the charts come after the figures
    if name == "fleet":
        queries = page.get_by_role("table").filter(has_text="WARN")
        worst = queries.get_by_role("row").nth(1).filter(has_text="FAILED")
        await worst.wait_for(timeout=_TROUBLE_S * 1000)
    await page.screenshot(path=PICTURES / f"{name}-{theme}.png")
    await page.close()


def main() -> int:
    """0 once all are drawn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    draw(parser.parse_args().seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
