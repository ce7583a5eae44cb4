"""`sparklag tokens`: the bearer tokens of the REST interface."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from sparklag_schemas import SettingsError, load_settings
from sparklag_schemas.settings import SCOPES
from sparklag_schemas.timestamps import duration_s, epoch_ms
from sparklag_service.access.token_file import create_token, read_tokens, revoke_token
from sparklag_service.cli.commands import CommandGroup
from sparklag_service.cli.terminal import Config, Json, print_json

tokens = typer.Typer(help="Tokens for the REST interface.", no_args_is_help=True, cls=CommandGroup)
Name = Annotated[str, typer.Argument(help="Name of the token, for its owner.")]
File = Annotated[
    Path | None, typer.Option("--file", help="The tokens file. [default: http_tokens.file]")
]


def _path(file: Path | None, config: Path | None) -> Path:
    path = file or load_settings(config=config).http_tokens.file
    if path is None:
        raise SettingsError("no tokens file: set http_tokens.file, or --file")
    return Path(path)


@tokens.command("create")
def create(
    name: Name,
    scope: Annotated[list[str], typer.Option(help=f"Repeatable: {', '.join(SCOPES)}.")],
    query: Annotated[
        list[str] | None, typer.Option(help="Only queries with such a whole name or id (pattern).")
    ] = None,
    cluster: Annotated[
        list[str] | None, typer.Option(help="Only queries that read from this cluster.")
    ] = None,
    expires: Annotated[str | None, typer.Option(help="Valid for so long: 90d, 12h.")] = None,
    file: File = None,
    config: Config = None,
) -> None:
    """Create a token and print it, once: the file keeps its hash only."""
    try:
        expires_at = None if expires is None else epoch_ms() + round(duration_s(expires) * 1000)
    except ValueError as error:
        raise SettingsError(f"--expires: {error}") from error
    path = _path(file, config)
    typer.echo(create_token(path, name, scope, query or (), cluster or (), expires_at))


@tokens.command("list")
def show(file: File = None, config: Config = None, as_json: Json = False) -> None:
    """List the tokens: their names, scopes and limits."""
    listed = read_tokens(_path(file, config))
    if as_json:
        print_json(msgspec.to_builtins(listed))
        return
    for token in listed:
        limits = [*(f"query {q}" for q in token.queries), *(f"cluster {c}" for c in token.clusters)]
        end = token.expires_at and datetime.fromtimestamp(token.expires_at // 1000, timezone.utc)
        ends = f", expires {end}" if end else ""
        may = ", ".join(token.scopes)
        typer.echo(f"{token.name}: {may}; {', '.join(limits) or 'every query'}{ends}")


@tokens.command("revoke")
def revoke(name: Name, file: File = None, config: Config = None) -> None:
    """Remove a token: within seconds a service refuses it, and ends its streams."""
    revoke_token(_path(file, config), name)
