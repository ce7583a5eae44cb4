"""`sparklag top`: all queries live in a terminal. `app`, `screens` and `table` need Textual."""

from __future__ import annotations

import asyncio
import os
import sys
from importlib.util import find_spec

import typer

from sparklag_schemas.errors import MissingPackage, install_command
from sparklag_schemas.runtime.tasks import call_on_signals
from sparklag_schemas.service_access import ServiceAccess
from sparklag_service.cli.requests import service_at
from sparklag_service.cli.terminal import DEFAULT_URL, Config, Interval, Url, console
from sparklag_service.errors import ServiceError


def top(url: Url = DEFAULT_URL, interval: Interval = 2.0, config: Config = None) -> None:
    """Show all queries live, the worst first; the keys are shown at the bottom.

    It needs a terminal; a program reads `sparklag queries --json`.
    """
    if find_spec("textual") is None:
        raise MissingPackage(f"top needs textual: {install_command('top')}")
    # Textual reads keys from stdin and draws on stderr.
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise ServiceError("top needs a terminal: use `sparklag queries` where there is none")
    raise typer.Exit(asyncio.run(_run(service_at(url, config), interval)))


async def _run(service: ServiceAccess, interval_s: float) -> int:
    # Textual takes long to load, and may not be installed.
    from sparklag_service.cli.top.app import TopApp

    if console().is_dumb_terminal:
        os.environ["NO_COLOR"] = "1"  # Textual checks only this
    app = TopApp(service, interval_s)
    call_on_signals(lambda number: app.action_end(128 + number))
    await app.run_async()
    return app.return_code or 0
