"""What commands print on a terminal. Text of others must neither mark it up nor control it."""

from __future__ import annotations

import json
from collections.abc import Iterable

import rich.markup
import typer
from rich.console import Console
from rich.table import Table

from sparklag_schemas.printable import printable


def console(*, wrap: bool = False) -> Console:
    """On standard output; lines are not broken unless `wrap`."""
    return Console(highlight=False, soft_wrap=not wrap)


def table(headings: Iterable[str], *, left: Iterable[str] = ("topic", "")) -> Table:
    """Without borders; columns are aligned right, but those in `left`."""
    plain = Table(box=None, pad_edge=False)
    for heading in headings:
        plain.add_column(heading, justify="left" if heading in left else "right")
    return plain


def escape(text: str) -> str:
    """`text` as rich prints it on one line: neither its markup nor the terminal obeys it."""
    return rich.markup.escape(printable(text, len(text)))


def ascii_json(document: bytes | str) -> str:
    """The same JSON on one line and in ASCII: the terminal obeys nothing in it either."""
    return json.dumps(json.loads(document))


def print_json(document: object) -> None:
    """On one line and in ASCII."""
    typer.echo(json.dumps(document))
