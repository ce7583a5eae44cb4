"""Tables that fit the terminal: the least important columns are left out, so no number is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

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
