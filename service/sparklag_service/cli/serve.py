"""`sparklag serve`"""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated

import typer

from sparklag_schemas import load_settings
from sparklag_schemas.printable import PrintableFormatter
from sparklag_service.cli.options import BootstrapServers, Config


def serve(
    bootstrap_servers: BootstrapServers = None,
    http_host: Annotated[str | None, typer.Option(help="Address to serve on.")] = None,
    http_port: Annotated[int | None, typer.Option(help="Port to serve on; 0: a free one.")] = None,
    config: Config = None,
) -> None:
    """Run the service: read observations, measure lag, publish it, serve it over REST."""
    # Loading the server takes seconds, and `sparklag lag` is a probe that runs every few.
    from sparklag_service.server import serve as serve_until_signal

    settings = load_settings(
        config=config,
        overrides={
            "bootstrap_servers": bootstrap_servers,
            "http_host": http_host,
            "http_port": http_port,
        },
    )
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    # Libraries log at DEBUG what they send, credentials among it.
    level = getattr(logging, settings.log_level)
    logging.basicConfig(level=max(logging.INFO, level), handlers=[handler])
    for package in ("sparklag", "sparklag_offsets", "sparklag_schemas", "sparklag_service"):
        logging.getLogger(package).setLevel(level)
    asyncio.run(serve_until_signal(settings))
