"""The lag of several queries, as `handle.lags()` returns it and a notebook shows it."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Any, Final

from sparklag_schemas import LagEvent, SparklagError
from sparklag_schemas.messages.enumerations import Mark, mark
from sparklag_schemas.presentation import sentences
from sparklag_schemas.presentation.rows import CELLS, severity
from sparklag_schemas.text.formatting import records
from sparklag_schemas.text.printable import first_few, printable
from sparklag_schemas.timestamps import epoch_ms

if TYPE_CHECKING:
    import pandas

    from sparklag_listener.lag.tables import Table

_log = logging.getLogger("sparklag")
REFRESH_TIMEOUT_S: Final = 5.0
"""The limit of reading for one refresh. The first refresh blocks the cell."""
INTERVAL_S: Final = 2.0
MAX_LIVE_S: Final = 1_800.0
_MAX_PAUSE_S: Final = 15.0
_MAX_SHARE: Final = 0.1
"""The share of the time that reading may take: after a slow refresh the pause is longer."""
_MAX_ROWS: Final = 50
_MAX_NAME: Final = 80
_MAX_REASON: Final = 300
_COLORS: Final[dict[Mark, str]] = {"bad": "#d64545", "warn": "#b58105", "ok": "#2f9e58"}
_SYMBOLS: Final[dict[Mark, str]] = {"bad": "✖", "warn": "▲", "ok": "●"}
_HEADINGS: Final = (
    *("query", "status", "lag", "time lag", "trend", "catch-up", "last measured", "reason"),
)
_NUMBERS: Final = {"lag", "time lag", "trend", "catch-up"}
_LONG: Final = {"query", "reason"}
_BORDER: Final = "border-bottom:1px solid rgba(128,128,128,.35)"


def lag_table(events: Sequence[LagEvent], now_ms: int) -> str:
    """An HTML table with a row for each query, the worst status first."""
    if not events:
        return paragraph("no lag is published yet of the queries that are observed")
    ranked = sorted(events, key=lambda event: severity(event.status))
    head = "".join(_cell("th", name, escape(name)) for name in _HEADINGS)
    rows = "".join(f"<tr>{_row(event, now_ms)}</tr>" for event in ranked[:_MAX_ROWS])
    table = (
        '<table style="border-collapse:collapse;background:none;color:inherit;font:inherit">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )
    if len(events) > _MAX_ROWS:
        table += paragraph(f"{len(events) - _MAX_ROWS:,} more queries; lags() has them all")
    return table


def paragraph(text: str) -> str:
    """A line of any text, as HTML."""
    return f'<div style="opacity:.8">{escape(printable(text, 1_000))}</div>'


def _row(event: LagEvent, now_ms: int) -> str:
    level = mark(event.status)
    status = f"{_SYMBOLS[level]} {escape(printable(event.status, _MAX_NAME))}"
    cells = [
        f"<bdi>{escape(printable(event.display_name, _MAX_NAME))}</bdi>",
        f'<span style="color:{_COLORS[level]};font-weight:bold">{status}</span>',
        *(escape(CELLS[heading](event, now_ms)) for heading in _HEADINGS[2:-1]),
        escape(printable(event.reason or "", _MAX_REASON)),
    ]
    return "".join(_cell("td", name, cell) for name, cell in zip(_HEADINGS, cells, strict=True))


def _cell(tag: str, heading: str, content: str) -> str:
    """`content` is HTML."""
    align = "right" if heading in _NUMBERS else "left"
    wrap = "normal" if heading in _LONG else "nowrap"
    style = f"text-align:{align};white-space:{wrap};padding:2px 8px;{_BORDER}"
    return f'<{tag} style="{style}">{content}</{tag}>'


class Lags(tuple[LagEvent, ...]):
    """The newest lag event of each query, by name."""

    __slots__ = ()

    def to_pandas(self, *, partitions: bool = False) -> pandas.DataFrame:
        """A row for each query, or each partition of each source.

        Unknown values are missing (`pandas.NA`), never 0; times are timestamps in UTC. Raises
        MissingPackage without pandas.
        """
        return self._table(partitions).to_pandas()

    def to_spark(self, spark: Any, *, partitions: bool = False) -> Any:
        """The rows of `to_pandas` as a DataFrame of `spark`. Unknown values are null."""
        return self._table(partitions).to_spark(spark)

    def _table(self, partitions: bool) -> Table:
        # Imported here: every driver imports this module.
        from sparklag_listener.lag.tables import partition_table, query_table

        return partition_table(self) if partitions else query_table(self)

    def _repr_html_(self) -> str:
        return lag_table(self, epoch_ms())

    def __repr__(self) -> str:
        texts = [
            f"{printable(event.display_name, 80)} {printable(event.status)}"
            f" lag {records(event.total_lag)}"
            for event in self
        ]
        return f"<Lags: {first_few(texts) or 'no query'}>"


ReadLags = Callable[[], Lags | None]
"""Returns None once the handle is closed. Raises SparklagError."""


def lag_html(title: str, read: ReadLags) -> str:
    """The line `title` and a table of the queries, now."""
    return _document(title, _read_table(read) or "", "")


def kernel_shell() -> Any:
    """IPython's shell. Raises NotImplementedError outside a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is None:
        raise NotImplementedError
    return shell


def show_in_notebooks() -> None:
    """In a notebook, show lag events in sentences: a message itself has no text."""
    with suppress(NotImplementedError):
        kernel_shell().display_formatter.formatters["text/html"].for_type(LagEvent, sentences.html)


class LiveTable:
    """The output of a handle in one cell."""

    def __init__(self, title: Callable[[], str], read: ReadLags, shell: Any) -> None:
        """`title`: the line above the table. `shell`: see `kernel_shell`."""
        self._title = title
        self._read = read
        self._shell = shell
        self._stop_reason: str | None = None
        self._stopped = threading.Event()

    def show(self) -> None:
        """Display the table, and refresh it in the background until `stop`."""
        from IPython.display import display

        show: Any = display  # it has no types
        began_s = time.monotonic()
        table = _read_table(self._read)
        if table is None:
            show(self._bundle("", ""), raw=True)
            return
        took_s = time.monotonic() - began_s
        shown = show(self._bundle(table, ""), raw=True, display_id=True)
        self._shell.events.register("post_run_cell", self._stop_on_interrupt)
        arguments = (shown, table, took_s)
        threading.Thread(
            target=self._refresh, args=arguments, name="sparklag-table", daemon=True
        ).start()

    def stop(self, reason: str) -> None:
        """Stop refreshing the table. Idempotent, does not wait."""
        self._stop_reason = self._stop_reason or reason
        self._stopped.set()

    def _refresh(self, shown: Any, table: str, took_s: float) -> None:
        """`took_s`: the time it took to read `table`."""
        deadline_s = time.monotonic() + MAX_LIVE_S
        try:
            while not self._stopped.wait(min(max(INTERVAL_S, took_s / _MAX_SHARE), _MAX_PAUSE_S)):
                began_s = time.monotonic()
                newest = _read_table(self._read) if began_s <= deadline_s else table
                if newest is None:
                    self.stop("the handle is closed")
                elif began_s > deadline_s:
                    self.stop(f"it was live for {MAX_LIVE_S / 60:g} min; display it again")
                else:
                    table, took_s = newest, time.monotonic() - began_s
                    shown.update(self._bundle(table, ""), raw=True)
            note = f"not refreshed any more: {self._stop_reason}"
            shown.update(self._bundle(table, note), raw=True)
        except Exception as error:
            # The kernel may be ending.
            _log.warning("sparklag: a table is not refreshed any more: %r", error)
        finally:
            with suppress(ValueError):
                self._shell.events.unregister("post_run_cell", self._stop_on_interrupt)

    def _bundle(self, table: str, note: str) -> dict[str, str]:
        title = self._title()
        return {"text/html": _document(title, table, note), "text/plain": title}

    def _stop_on_interrupt(self, result: Any) -> None:
        if isinstance(getattr(result, "error_in_exec", None), KeyboardInterrupt):
            self.stop("the kernel was interrupted")


def _read_table(read: ReadLags) -> str | None:
    try:
        lags = read()
        if lags is None:
            return None
        table = lag_table(lags, epoch_ms())
    except SparklagError as error:
        table = paragraph(str(error))
    return f"{table}{paragraph(datetime.now().strftime('as of %H:%M:%S'))}"


def _document(title: str, table: str, note: str) -> str:
    return f"{paragraph(title)}{table}{paragraph(note) if note else ''}"
