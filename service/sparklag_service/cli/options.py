"""Options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparklag_schemas import ResolvedSettings, load_settings

Config = Annotated[
    Path | None, typer.Option("--config", help="Settings file. [default: sparklag.toml, if there]")
]
BootstrapServers = Annotated[
    str | None, typer.Option("--bootstrap-servers", help="Kafka, as host:port[,host:port].")
]
Url = Annotated[
    str,
    typer.Option("--url", envvar="SPARKLAG_URL", help="A running service."),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON, for a program.")]

DEFAULT_URL = "http://127.0.0.1:8085"


def kafka_settings(config: Path | None, bootstrap_servers: str | None) -> ResolvedSettings:
    """The settings. Raises SettingsError where nothing says where Kafka is."""
    return load_settings(
        config=config, overrides={"bootstrap_servers": bootstrap_servers}
    ).resolved()
