"""Tables and lines of text for a terminal. Needs rich."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Final, Literal, NamedTuple

import rich.markup
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from sparklag_schemas import LagEvent, PartitionLag, TopicLag
from sparklag_schemas.messages.enumerations import mark
from sparklag_schemas.presentation import sentences
from sparklag_schemas.presentation.rows import COLOURS, QueryLag, partitions_of, worst_first
from sparklag_schemas.text.formatting import records
from sparklag_schemas.text.printable import printable

_ANY_WIDTH: Final = 1_000_000
_GAP: Final = 2
_INDENT: Final = 4
Kind = Literal["number", "word", "name", "text"]
"""A number is aligned right, the others left. A word is never shortened, a name is shortened to one
line, a text is wrapped between words."""
_MIN_WIDTH: Final[dict[Kind, int]] = {"name": 10, "text": 24}
"""In cells. A column of another kind is as wide as its content."""


def width_of(output: IO[str]) -> int | None:
    """Returns the width for rich. None: the terminal's; lines of a pipe or file have any length."""
    return None if output.isatty() else _ANY_WIDTH


def plain(text: str) -> str:
    """Returns all of `text` on one line, without control characters for a terminal."""
    return printable(text, len(text))


def escape(text: str) -> str:
    """Returns the `plain` text with rich's markup escaped."""
    return rich.markup.escape(plain(text))


@dataclass(frozen=True)
class Trimmed:
    """Renders content without blanks at the ends of lines."""

    content: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segments]:
        for line in console.render_lines(self.content, options, pad=False):
            while line and not line[-1].text.strip():
                line.pop()
            if line:
                line[-1] = line[-1]._replace(text=line[-1].text.rstrip())
            yield Segments([*line, Segment.line()])


class Column(NamedTuple):
    """A column, and how important it is."""

    heading: str
    kind: Kind
    rank: int
    """The column of the highest rank is left out first."""


@dataclass(frozen=True)
class FittedTable:
    """Renders as many columns as the available width holds, and a line that names the others."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str | Text]]
    """Cells are printable text, and never markup."""
    details: Sequence[str] = ()
    """Lines below their rows; a table with details has no column of kind `text`."""
    title: str = ""
    caption: str = ""

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        widths = self._widths(options.max_width)
        table = Trimmed(self._table(widths))
        if self.title:
            yield Text(self.title, style="italic")
        if self.details:
            lines = table.__rich_console__(console, options)
            for line, detail in zip(lines, ("", *self.details), strict=True):
                yield line
                if detail:
                    yield Trimmed(Padding(Text(detail, style="dim"), (0, 0, 0, _INDENT)))
        else:
            yield table
        left_out = [each.heading for at, each in enumerate(self.columns) if at not in widths]
        if left_out:
            note = f"not shown in {options.max_width} columns: {', '.join(left_out)}"
            yield Trimmed(Text(note, style="dim"))
        if self.caption:
            yield Text(self.caption, style="dim")

    def _table(self, widths: dict[int, int]) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
        for number, width in widths.items():
            column = self.columns[number]
            table.add_column(
                Text(column.heading),
                justify="right" if column.kind == "number" else "left",
                width=width,
                no_wrap=column.kind != "text",
                overflow="fold" if column.kind == "text" else "ellipsis",
            )
        for row in self.rows:
            table.add_row(*(_text(row[number]) for number in widths))
        return table

    def _widths(self, available: int) -> dict[int, int]:
        whole = [
            max(map(cell_len, (column.heading, *(_text(row[number]).plain for row in self.rows))))
            for number, column in enumerate(self.columns)
        ]
        by_rank = sorted(range(len(whole)), key=lambda number: self.columns[number].rank)
        widths: dict[int, int] = {}
        free = available + _GAP
        for number in by_rank:
            column = self.columns[number]
            least = max(_MIN_WIDTH.get(column.kind, whole[number]), cell_len(column.heading))
            width = min(whole[number], least)
            # The first column is shown at any width.
            if not widths or width + _GAP <= free:
                widths[number] = width
                free -= width + _GAP
        for number in by_rank:
            if number in widths:
                more = max(0, min(whole[number] - widths[number], free))
                widths[number] += more
                free -= more
        return dict(sorted(widths.items()))


def _text(cell: str | Text) -> Text:
    return Text(cell) if isinstance(cell, str) else cell


SHOWN_PARTITIONS: Final = 20
_PARTITION_COLUMNS: Final = (
    Column("topic", "name", 2),
    Column("partition", "number", 0),
    Column("processed", "number", 6),
    Column("latest", "number", 5),
    Column("lag", "number", 1),
    Column("time lag", "number", 3),
    Column("reason", "text", 4),
)


def status_cell(query: QueryLag) -> Text:
    return Text(plain(query.status), style=COLOURS[mark(query.status)])


def headline(event: LagEvent, now_ms: int) -> str:
    """Name, status, since when and why, as rich markup."""
    colour = COLOURS[mark(event.status)]
    name, status = escape(event.display_name), escape(sentences.status(event, now_ms))
    return f"[bold]{name}[/bold]  [{colour}]{status}[/{colour}]"


def facts(event: LagEvent, now_ms: int) -> Trimmed:
    """How far behind the query is, how fast, and why."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column()
    for heading, text in sentences.lines(event, now_ms):
        grid.add_row(heading, escape(text))
    return Trimmed(grid)


def event_view(event: LagEvent, now_ms: int, most: int | None = SHOWN_PARTITIONS) -> Group:
    """The query's lag, the facts that explain it, and its partitions: `most` of them, or all."""
    count = sum(len(topic.partitions) for topic in event.topics)
    if most is None or count <= most:
        table = partition_table(partitions_of(event))
    else:
        caption = f"{count - most:,} more partitions; all with --all"
        table = partition_table(worst_first(event)[:most], caption)
    return Group(headline(event, now_ms), facts(event, now_ms), table)


def partition_table(
    partitions: Iterable[tuple[TopicLag, PartitionLag]], caption: str = ""
) -> FittedTable:
    rows = [
        (
            plain(topic.topic),
            str(partition.partition),
            records(partition.processed_offset),
            records(partition.latest_offset),
            records(partition.unread),
            sentences.time_lag(partition),
            plain(partition.reason or ""),
        )
        for topic, partition in partitions
    ]
    return FittedTable(_PARTITION_COLUMNS, rows, caption=caption)
