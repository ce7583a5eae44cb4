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
_TOXIPROXY: Final = "github.com/Shopify/toxiproxy/v2/cmd/server"
_OAUTH2_PROXY_VERSION: Final = "v7.15.6"
_OAUTH2_PROXY: Final = "github.com/oauth2-proxy/oauth2-proxy/v7"

Tell = Callable[[str], None]
"""Reports what the test waits for."""


class ToolMissing(Exception):
    """A program is not here and could not be got: the text is one line with the way to get it."""


def toxiproxy_server(tell: Tell) -> Path:
    """Toxiproxy's server. Raises ToolMissing."""
    return _go_program("toxiproxy", _TOXIPROXY, TOXIPROXY_VERSION, tell)


def oauth2_proxy(tell: Tell) -> Path:
    """oauth2-proxy. Raises ToolMissing."""
    return _go_program("oauth2-proxy", _OAUTH2_PROXY, _OAUTH2_PROXY_VERSION, tell)


def _go_program(name: str, module: str, version: str, tell: Tell) -> Path:
    """A program that Go builds once into the cache. Raises ToolMissing."""
    folder = default_cache_dir() / name
    program = folder / version
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock"):
        if not program.exists():
            _build(folder, program, f"{module}@{version}", tell)
    return program


def _build(folder: Path, program: Path, module: str, tell: Tell) -> None:
    go = shutil.which("go")
    if go is None:
        raise ToolMissing(
            f"{folder.name} is built with Go, which is not here: install Go 1.23 or newer"
            " (https://go.dev/dl)"
        )
    tell(f"building {folder.name} with {go}, once: some minutes")
    built = folder / "building"
    built.mkdir(exist_ok=True)
    failure = run_command([go, "install", module], environment={"GOBIN": str(built), "GOFLAGS": ""})
    programs = list(built.iterdir())
    if failure is not None or len(programs) != 1:
        raise ToolMissing(f"cannot build {folder.name}: go install {module}: {failure}")
    programs[0].rename(program)


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
