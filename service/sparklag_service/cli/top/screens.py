"""The screens of `top`: all queries, one query, the help."""

from __future__ import annotations

from typing import ClassVar, Final

from rich.console import Group
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, Input, Static

from sparklag_schemas import LagEvent
from sparklag_schemas.presentation.rows import Summary, worst_first
from sparklag_schemas.presentation.tables import facts, headline, partition_table
from sparklag_schemas.text.formatting import records
from sparklag_schemas.text.printable import printable
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.cli.top.state import State, sentence
from sparklag_service.cli.top.table import QueryTable

_PARTITIONS: Final = 200
"""Rows of a query's table: laying out thousands takes longer than an interval."""
_HELP: Final = """\
↑ ↓ j k    select a query; also page up, page down, home, end, and the mouse
enter      open the selected query: why it lags, its last hour, its partitions
esc        go back, or clear the filter
/          filter by a part of a name, id, status, topic or reason
s          sort by the next of worst, lag, time lag, trend, catch-up, headroom,
           query
r          reverse the order
p          pause: the numbers stay as they are
q ctrl-c   quit

!! !       somebody must act, should look at it
lag            total, in records; in each of the last minutes, in proportion to
               the highest (? it was unknown, blank: it was not measured)
time lag       age of the first record that the query has not processed
trend          change of the lag per second
catch-up       time until the lag is gone, at the present rates
headroom       time until retention deletes records that are not processed
running batch  how long it has run, its tasks done and in all
last measured  when the latest offsets were read
"""


class LiveScreen(Screen[None]):
    """A screen that shows the current state each second."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self.state = state
        # Widgets are attributes: a response may arrive before they are mounted, or after.
        self._alarm = _text("alarm")

    def on_screen_resume(self) -> None:
        self.show(epoch_ms())

    def show(self, now_ms: int) -> None:
        raise NotImplementedError

    def show_alarm(self, text: str) -> None:
        """Show a line of alarm; no line for an empty text."""
        self._alarm.update(Text(f"PAUSED  {text}" if self.state.is_paused else text))
        self._alarm.display = bool(text) or self.state.is_paused


def _text(name: str) -> Static:
    return Static(id=name, markup=False)


class FilterInput(Input):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "Keep", key_display="enter"),
        Binding("escape", "screen.clear_filter", "Clear", key_display="esc"),
    ]


class FleetScreen(LiveScreen):
    BINDINGS: ClassVar[list[BindingType]] = [
        # Priority: keys typed ahead go to the filter.
        Binding("slash", "filter", "Filter", key_display="/", priority=True),
        Binding("escape", "clear_filter", show=False),
        Binding("s", "sort", "Sort"),
        Binding("r", "reverse", "Reverse"),
    ]

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.table = QueryTable(state.fleet.history)
        self._title, self._totals, self._headings, self._sentence = map(
            _text, ("title", "totals", "headings", "sentence")
        )
        hint = "a part of a name, id, status, topic or reason"
        self._filter = FilterInput(placeholder=hint, compact=True)
        self._filter.display = False

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._totals
        yield self._alarm
        yield self._headings
        yield self.table
        yield self._sentence
        yield self._filter
        yield Footer(compact=True)

    def on_mount(self) -> None:
        self.table.focus()

    def show(self, now_ms: int) -> None:
        queries = self.state.listed()
        self.table.show(queries, now_ms)
        self._title.update(self.state.title(now_ms, len(queries)))
        self._totals.update(self.state.totals())
        self.show_alarm(self.state.alarm(now_ms))
        self._show_around_table(now_ms)

    def _show_around_table(self, now_ms: int) -> None:
        self._headings.update(Text(self.table.headings()))
        selected = self.table.selected
        text = self.state.placeholder() if selected is None else sentence(selected, now_ms)
        self._sentence.update(Text(text))

    def on_query_table_moved(self) -> None:
        self._show_around_table(epoch_ms())

    def on_input_changed(self, event: Input.Changed) -> None:
        self.state.text = event.value
        self.show(epoch_ms())

    def on_input_submitted(self) -> None:
        self._filter.display = False
        self.table.focus()

    def action_filter(self) -> None:
        self._filter.display = True
        self.set_focus(self._filter)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        return action != "filter" or self.focused is not self._filter

    def action_clear_filter(self) -> None:
        self._filter.value = ""
        self.on_input_submitted()

    def action_sort(self) -> None:
        self.state.next_order()
        self.show(epoch_ms())

    def action_reverse(self) -> None:
        self.state.is_reversed = not self.state.is_reversed
        self.show(epoch_ms())


class QueryScreen(LiveScreen):
    """One query: why it lags, its last hour, its partitions."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "app.pop_screen", "Back", key_display="esc"),
        Binding("up,k", "scroll(-1)", "Scroll", key_display="↑↓"),
        Binding("down,j", "scroll(1)", show=False),
    ]

    def __init__(self, state: State, summary: Summary) -> None:
        super().__init__(state)
        self.summary = summary
        self._body = _text("body")
        self._scroll = VerticalScroll(self._body)
        self.event: LagEvent | None = None
        """None: not read yet."""
        self.error: str | None = None

    def compose(self) -> ComposeResult:
        yield self._alarm
        yield self._scroll
        yield Footer(compact=True)

    def show(self, now_ms: int) -> None:
        alarms = [self.state.alarm(now_ms)]
        if self.error is not None and self.state.fleet.error is None:
            alarms.append(f"NO NEW NUMBERS: {printable(self.error)}")
        self.show_alarm("\n".join(filter(None, alarms)))
        event = self.event
        if event is None:
            self._body.update(Text(sentence(self.summary, now_ms)))
            return
        history = self.state.fleet.history(event.query_id)
        partitions = worst_first(event)
        hour = Text(f"\nlag in the last hour, up to {records(history.highest(now_ms))}\n")
        caption = ""
        if len(partitions) > _PARTITIONS:
            caption = f"the {_PARTITIONS} of {len(partitions):,} partitions that lag most"
        table = partition_table(partitions[:_PARTITIONS], caption)
        self._body.update(
            Group(
                headline(event, now_ms),
                facts(event, now_ms),
                hour.append(history.sparkline(now_ms)).append("\n"),
                table,
            )
        )

    def action_scroll(self, lines: int) -> None:
        self._scroll.scroll_relative(y=lines, animate=False)


class HelpScreen(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,enter", "dismiss", "Back", key_display="esc")
    ]

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(_HELP, markup=False)
        yield Footer(compact=True)
