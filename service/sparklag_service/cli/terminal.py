"""The terminal: colours, widths and tables."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from math import isnan
from pathlib import Path
from typing import IO, Annotated, Final, Literal, NamedTuple

import msgspec
import rich.markup
import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from sparklag_schemas import ResolvedSettings, load_settings
from sparklag_schemas.text.formatting import Mark
from sparklag_schemas.text.printable import printable


def _refuse_nan(seconds: float) -> float:
    if isnan(seconds):  # no bound refuses it
        raise typer.BadParameter("expected a number of seconds")
    return seconds


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
Interval = Annotated[
    float,
    typer.Option(min=0.5, max=3_600, callback=_refuse_nan, help="Seconds between two requests."),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON, for a program.")]
DEFAULT_URL = "http://127.0.0.1:8085"
COLOURS: Final[dict[Mark, str]] = {"bad": "red", "warn": "yellow", "ok": "green"}
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")
_ANY_WIDTH: Final = 1_000_000
_LONGEST_ERROR: Final = 2_000


def kafka_settings(config: Path | None, bootstrap_servers: str | None) -> ResolvedSettings:
    """The settings. Raises SettingsError where nothing says where Kafka is."""
    return load_settings(
        config=config, overrides={"bootstrap_servers": bootstrap_servers}
    ).resolved()


def console(*, wrap: bool = False, stderr: bool = False) -> Console:
    """On standard output, or on standard error; lines are not broken unless `wrap`, and that is a
    terminal."""
    width = width_of(sys.stderr if stderr else sys.stdout)
    return Console(highlight=False, emoji=False, soft_wrap=not wrap, stderr=stderr, width=width)


def width_of(output: IO[str]) -> int | None:
    """For rich: None, which is the terminal's width; a pipe or a file has lines of any length."""
    return None if output.isatty() else _ANY_WIDTH


def plain(text: str) -> str:
    """`text` on one line, whole, and nothing in it that a terminal obeys."""
    return printable(text, len(text))


def escape(text: str) -> str:
    """The same for rich, which obeys no markup in it either."""
    return rich.markup.escape(plain(text))


def ascii_json(document: bytes) -> str:
    """The same JSON on one line and in ASCII: the terminal obeys nothing in it either."""
    line = msgspec.json.format(document, indent=0).decode(errors="replace")
    return _NOT_ASCII.sub(lambda text: json.dumps(text[0])[1:-1], line)


def print_error(text: str) -> None:
    """On one line, on standard error."""
    typer.echo(f"sparklag: {printable(text, _LONGEST_ERROR)}", err=True)


def print_json(document: object) -> None:
    """On one line and in ASCII."""
    typer.echo(json.dumps(document))


_GAP: Final = 2
_INDENT: Final = 4
Kind = Literal["number", "word", "name", "text"]
"""A number goes right. All others go left: a word is never shortened, a name is shortened to one
line, a text is wrapped between words."""
_MIN_WIDTH: Final[dict[Kind, int]] = {"name": 10, "text": 24}
"""Cells. A column of another kind takes what its cells take."""


class Column(NamedTuple):
    """A column, and how important it is."""

    heading: str
    kind: Kind
    rank: int
    """The column of the highest rank is left out first."""


class FittedTable:
    """Renders as many columns as the available width holds, and a line that names the others.

    Cells are printable text, and never markup. `details` are lines below their rows; a table with
    details has no column of kind `text`.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        rows: Sequence[Sequence[str | Text]],
        *,
        details: Sequence[str] = (),
        title: str = "",
        caption: str = "",
    ) -> None:
        self._columns = columns
        self._rows = [[Text(c) if isinstance(c, str) else c for c in row] for row in rows]
        self._details = details
        self._title = title
        self._caption = caption

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        widths = self._widths(options.max_width)
        table = self._table(widths)
        if self._title:
            yield Text(self._title, style="italic")
        if self._details:
            lines = console.render_lines(table, options, pad=False)
            for line, detail in zip(lines, ("", *self._details), strict=True):
                yield Segments([*line, Segment.line()])
                if detail:
                    yield Padding(Text(detail, style="dim"), (0, 0, 0, _INDENT), expand=False)
        else:
            yield table
        left_out = [each.heading for at, each in enumerate(self._columns) if at not in widths]
        if left_out:
            yield Text(
                f"not shown in {options.max_width} columns: {', '.join(left_out)}", style="dim"
            )
        if self._caption:
            yield Text(self._caption, style="dim")

    def _table(self, widths: dict[int, int]) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
        for number, width in widths.items():
            column = self._columns[number]
            table.add_column(
                Text(column.heading),
                justify="right" if column.kind == "number" else "left",
                width=width,
                no_wrap=column.kind != "text",
                overflow="fold" if column.kind == "text" else "ellipsis",
            )
        for row in self._rows:
            table.add_row(*(row[number] for number in widths))
        return table

    def _widths(self, available: int) -> dict[int, int]:
        """The width of each column that is shown, by its number."""
        whole = [
            max(map(cell_len, (column.heading, *(row[number].plain for row in self._rows))))
            for number, column in enumerate(self._columns)
        ]
        by_rank = sorted(range(len(whole)), key=lambda number: self._columns[number].rank)
        widths: dict[int, int] = {}
        free = available + _GAP
        for number in by_rank:
            column = self._columns[number]
            least = max(_MIN_WIDTH.get(column.kind, whole[number]), cell_len(column.heading))
            width = min(whole[number], least)
            # The first is shown in any case: nothing says more.
            if not widths or width + _GAP <= free:
                widths[number] = width
                free -= width + _GAP
        for number in by_rank:
            if number in widths:
                more = max(0, min(whole[number] - widths[number], free))
                widths[number] += more
                free -= more
        return dict(sorted(widths.items()))
