"""Programs that the faults need: installed, downloaded, or one line with the way to get them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sparklag_jobs.broker.maven import default_cache_dir, locked
from tests.commands import run_command

TOXIPROXY_VERSION: Final = "v2.12.0"
_TOXIPROXY_MODULE: Final = f"github.com/Shopify/toxiproxy/v2/cmd/server@{TOXIPROXY_VERSION}"

Tell = Callable[[str], None]
"""Reports what the test waits for."""


class ToolMissing(Exception):
    """A program is not here and could not be got: the text is one line with the way to get it."""


def toxiproxy_server(tell: Tell) -> Path:
    """Toxiproxy's server, built once into the cache. Raises ToolMissing."""
    folder = default_cache_dir() / "toxiproxy"
    server = folder / TOXIPROXY_VERSION
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock"):
        if not server.exists():
            _build_toxiproxy(folder, server, tell)
    return server


def _build_toxiproxy(folder: Path, server: Path, tell: Tell) -> None:
    go = shutil.which("go")
    if go is None:
        raise ToolMissing(
            "Toxiproxy is built with Go, which is not here: install Go 1.23 or newer"
            " (https://go.dev/dl)"
        )
    tell(f"building Toxiproxy {TOXIPROXY_VERSION} with {go}, once: about a minute")
    built = folder / "building"
    built.mkdir(exist_ok=True)
    failure = run_command(
        [go, "install", _TOXIPROXY_MODULE], environment={"GOBIN": str(built), "GOFLAGS": ""}
    )
    if failure is not None or not (built / "server").exists():
        raise ToolMissing(f"cannot build Toxiproxy: go install {_TOXIPROXY_MODULE}: {failure}")
    (built / "server").rename(server)


def stepped_clock_library(folder: Path, tell: Tell) -> Path:
    """`stepped_clock.c` as a library in `folder`. Raises ToolMissing. For Linux."""
    compiler = _c_compiler()
    if compiler is None and shutil.which("apt-get") is not None:
        as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends"]
        tell("installing a C compiler, for a clock that can be stepped")
        run_command([*as_root, "apt-get", "update", "-qq"])
        run_command([*as_root, *install, "gcc", "libc6-dev"])
        compiler = _c_compiler()
    library = folder / "stepped_clock.so"
    source = Path(__file__).with_name("stepped_clock.c")
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror"]
    if compiler is None:
        raise ToolMissing("no C compiler is here: sudo apt-get install gcc libc6-dev")
    failure = run_command([compiler, *flags, "-o", str(library), str(source)])
    if failure is not None:
        raise ToolMissing(f"cannot compile {source.name} with {compiler}: {failure}")
    return library


def _c_compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
