"""The table of queries: renders the visible lines, and refreshes only lines that changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click, Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from sparklag_schemas.messages.enumerations import mark
from sparklag_schemas.presentation.rows import COLOURS, Summary
from sparklag_service.cli.top.columns import (
    MARK_SIGNS,
    SELECTION_WIDTH,
    STATUS,
    Column,
    LagHistory,
    Placed,
    placed_columns,
    widths_of,
)


class QueryTable(ScrollView, can_focus=True):
    """A row for each query. One row is selected: at first the top row, whichever query that is."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Select", key_display="↑↓", show=True),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home,g", "move(-1_000_000)", show=False),
        Binding("end,G", "move(1_000_000)", show=False),
        Binding("enter", "open", "Open", key_display="enter"),
    ]

    class Moved(Message):
        """Another query is selected, or other rows or columns are visible."""

    class Opened(Message):
        def __init__(self, summary: Summary) -> None:
            super().__init__()
            self.summary = summary

    def __init__(self, history: Callable[[str], LagHistory]) -> None:
        super().__init__()
        self._history = history
        self._queries: list[Summary] = []
        self._now_ms = 0
        self._widths: dict[Column, int] = {}
        self._columns: list[Placed] = []
        self._cursor = 0
        self._followed: str | None = None
        """The selected query. None: the top one."""
        self._lines: list[Strip] = []

    @property
    def selected(self) -> Summary | None:
        return self._queries[self._cursor] if self._queries else None

    @property
    def visible_ids(self) -> list[str]:
        top = self.scroll_offset.y
        return [query.query_id for query in self._queries[top : top + self.size.height]]

    def show(self, queries: list[Summary], now_ms: int) -> None:
        self._queries, self._now_ms = queries, now_ms
        widths = widths_of(queries, now_ms)
        # Columns never shrink between responses: the other columns would jump.
        self._widths = {
            column: max(width, self._widths.get(column, 0)) for column, width in widths.items()
        }
        self._columns = placed_columns(self._row_width, self._widths)
        self.virtual_size = Size(self._row_width, len(queries))
        ids = [query.query_id for query in queries]
        before = self._cursor
        if self._followed is None:
            self._cursor = 0
        elif self._followed in ids:
            self._cursor = ids.index(self._followed)
        else:
            self._cursor = max(0, min(self._cursor, len(ids) - 1))
            self._followed = ids[self._cursor] if self._cursor else None
        if self._cursor != before:  # keeps the place of a user who scrolls with the mouse
            self._reveal()
        self._refresh_changed()

    def headings(self) -> str:
        cells = [_aligned(placed.column.heading, placed) for placed in self._columns]
        return " " * SELECTION_WIDTH + " ".join(cells)

    def render_line(self, y: int) -> Strip:
        return self._line(y + self.scroll_offset.y)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.post_message(self.Moved())

    def on_resize(self, _: Resize) -> None:
        self._widths = {}
        self.show(self._queries, self._now_ms)
        self.post_message(self.Moved())

    def on_click(self, event: Click) -> None:
        """Select the row, or open it if it is selected."""
        row = event.y + self.scroll_offset.y
        if row == self._cursor:
            self.action_open()
        elif row < len(self._queries):
            self._select(row)

    def action_move(self, rows: int) -> None:
        self._select(self._cursor + rows)

    def action_page(self, pages: int) -> None:
        self._select(self._cursor + pages * max(1, self.size.height - 1))

    def action_open(self) -> None:
        if self.selected is not None:
            self.post_message(self.Opened(self.selected))

    @property
    def _row_width(self) -> int:
        has_scrollbar = len(self._queries) > self.size.height
        return self.size.width - (self.styles.scrollbar_size_vertical if has_scrollbar else 0)

    def _select(self, row: int) -> None:
        if not self._queries:
            return
        self._cursor = max(0, min(row, len(self._queries) - 1))
        self._followed = self._queries[self._cursor].query_id if self._cursor else None
        self._reveal()
        self._refresh_changed()
        self.post_message(self.Moved())

    def _reveal(self) -> None:
        region = Region(0, self._cursor, 1, 1)
        self.scroll_to_region(region, animate=False, immediate=True, x_axis=False)

    def _refresh_changed(self) -> None:
        top = self.scroll_offset.y
        lines = [self._line(top + y) for y in range(self.size.height)]
        if len(lines) != len(self._lines):
            self.refresh()
        else:
            for y, (old, new) in enumerate(zip(self._lines, lines, strict=True)):
                if old != new:
                    self.refresh_line(top + y)
        self._lines = lines

    def _line(self, row: int) -> Strip:
        width = self._row_width
        if row >= len(self._queries):
            return Strip.blank(width, self.rich_style)
        query, is_selected = self._queries[row], row == self._cursor
        severity = mark(query.status)
        base = self.rich_style + Style(reverse=is_selected or None)
        coloured = base + Style(color=COLOURS[severity], bold=severity == "bad")
        segments = [
            Segment(">" if is_selected else " ", base),
            Segment(f"{MARK_SIGNS[severity]:>2} ", coloured),
        ]
        history = self._history(query.query_id)
        for place in self._columns:
            text = place.column.text(query, history, self._now_ms)
            style = coloured if place.column is STATUS else base
            segments += [Segment(_aligned(text, place), style), Segment(" ", base)]
        return Strip(segments).adjust_cell_length(width, base)


def _aligned(text: str, place: Placed) -> str:
    if cell_len(text) > place.width:
        return set_cell_size(text, place.width - 1) + "…"
    if place.column.is_number:
        return " " * (place.width - cell_len(text)) + text
    return set_cell_size(text, place.width)
