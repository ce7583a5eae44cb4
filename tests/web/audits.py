"""What axe-core and Lighthouse say of a page."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import msgspec
from playwright.async_api import Page

from tests.node_programs import installed_packages, run_on_node

_FOLDER: Final = Path(__file__).parent
_LIGHTHOUSE_S: Final = 300.0
_RUN_AXE: Final = """
async () => (await axe.run(document, { resultTypes: ["violations"] })).violations.map(
    (rule) => `${rule.id}: ${rule.help}: ${rule.nodes.slice(0, 3).map((node) => node.html)}`)
"""


async def axe_violations(page: Page) -> list[str]:
    """Of all its rules: each with the first elements that violate it."""
    if not await page.evaluate("'axe' in window"):
        packages = await asyncio.to_thread(installed_packages, _FOLDER)
        # A script element would be subject to the page's Content-Security-Policy.
        await page.evaluate((packages / "axe-core" / "axe.min.js").read_text(encoding="utf-8"))
    return list(await page.evaluate(_RUN_AXE))


async def lighthouse_failures(debugging_port: int, url: str) -> list[str]:
    """What takes from 100 in Lighthouse's accessibility and best practices."""
    printed = await asyncio.to_thread(
        run_on_node, _FOLDER / "lighthouse.js", str(debugging_port), url, timeout_s=_LIGHTHOUSE_S
    )
    return msgspec.json.decode(printed, type=list[str])
