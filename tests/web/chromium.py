"""Chromium, driven by Playwright: that of this machine, or one unpacked from Debian's packages."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, async_playwright

from tests.debian_packages import ProgramsMissing, library_path, unpacked_packages, with_libraries
from tests.processes import processes_naming, session_members
from tests.waiting import DEADLINE_S, holds

_PACKAGES: Final = ("chromium", "fonts-dejavu-core")
# LLVM and the drivers that need it draw on a graphics card.
_NEEDS: Final = r"chromium-common|lib(?!llvm|gl1-mesa-dri).*"
_INSTALLED: Final = Path("/usr/bin/chromium")
_ARGUMENTS: Final = (
    "--no-sandbox",  # root has none
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-proxy-server",
    # A name that it looks up by itself, or that a page does, leads nowhere.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
"""Besides Playwright's own, which turn off updates, the first run and background requests."""
_FONTS: Final = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{fonts}</dir><cachedir>{home}/fonts</cachedir></fontconfig>
"""


@asynccontextmanager
async def running_chromium(*arguments: str) -> AsyncIterator[Browser]:
    """A browser with a home of its own; its processes and its files are gone afterwards.

    `arguments` are added to its command line. Raises ProgramsMissing.
    """
    program, unpacked = chromium_program()
    with tempfile.TemporaryDirectory(prefix="sparklag-chromium-") as home:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=program,
                args=[*_ARGUMENTS, *arguments],
                env=_environment(unpacked, home),
                timeout=DEADLINE_S * 1000,
            )
            pid = await _pid(browser)
            try:
                yield browser
            finally:
                await browser.close()
                # Those that handle crashes are in sessions of their own.
                await holds(
                    lambda: not session_members(pid) and not processes_naming(home),
                    "Chromium is gone",
                )


def chromium_program() -> tuple[Path, Path | None]:
    """And the folder where it is unpacked, if it is not installed. Raises ProgramsMissing."""
    if _INSTALLED.exists():
        return _INSTALLED, None
    unpacked = unpacked_packages("chromium", _PACKAGES, needs=_NEEDS, instead="install Chromium")
    path = unpacked / "usr/lib/chromium/chromium"
    if not path.exists():
        raise ProgramsMissing(f"Debian's packages {_PACKAGES} hold other programs than expected")
    return path, unpacked


def _environment(unpacked: Path | None, home: str) -> dict[str, str | float | bool]:
    own = {"HOME": home, "XDG_CACHE_HOME": f"{home}/cache", "XDG_CONFIG_HOME": f"{home}/config"}
    if unpacked is None:
        return {**os.environ, **own}
    fonts = Path(home) / "fonts.conf"
    fonts.write_text(_FONTS.format(fonts=unpacked / "usr/share/fonts", home=home))
    # A library of PulseAudio's is in a folder of its own.
    folders = [library_path(unpacked), *map(str, unpacked.glob("usr/lib/*-linux-*/pulseaudio"))]
    libraries = with_libraries(os.pathsep.join(folders)) or os.environ
    return {**libraries, **own, "FONTCONFIG_FILE": str(fonts)}


async def _pid(browser: Browser) -> int:
    session = await browser.new_browser_cdp_session()
    processes = (await session.send("SystemInfo.getProcessInfo"))["processInfo"]
    await session.detach()
    return next(int(each["id"]) for each in processes if each["type"] == "browser")
