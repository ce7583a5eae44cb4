"""A table in a notebook that refreshes itself, from a daemon thread."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, Protocol

from sparklag_listener.lag.html_table import lag_table, paragraph
from sparklag_listener.lag.lags import Lags
from sparklag_schemas import SparklagError
from sparklag_schemas.timestamps import epoch_ms

_log = logging.getLogger("sparklag")

INTERVAL_S: Final = 2.0
_MAX_PAUSE_S: Final = 15.0
_MAX_SHARE: Final = 0.1
"""Of the time that reading should take: after a slow refresh the pause is longer."""
MAX_LIVE_S: Final = 1_800.0
_TIMEOUT_S: Final = 5.0
"""Of reading for one refresh. The first holds up the cell."""


class ShownHandle(Protocol):
    """Its `repr` is the line above the table."""

    @property
    def closed(self) -> bool:
        """Whether nothing is observed any more."""

    def lags(self, *, timeout_s: float) -> Lags:
        """Raises SparklagError."""


def lag_html(handle: ShownHandle) -> str:
    """The handle and its queries, now."""
    return _document(handle, "" if handle.closed else _read_table(handle), "")


def kernel_shell() -> Any:
    """IPython's shell. Raises NotImplementedError where that is not a notebook's."""
    from IPython import get_ipython

    shell = get_ipython()
    if getattr(shell, "kernel", None) is None:
        raise NotImplementedError
    return shell


class LiveTable:
    """The output of a handle in one cell."""

    def __init__(self, handle: ShownHandle, shell: Any) -> None:
        """`shell`: see `kernel_shell`."""
        self._handle = handle
        self._shell = shell
        self._stop_reason: str | None = None
        self._stopped = threading.Event()

    def show(self) -> None:
        """Display it, and refresh it in the background until `stop`."""
        from IPython.display import display

        show: Any = display  # it has no types
        if self._handle.closed:
            show(self._bundle("", ""), raw=True)
            return
        began_s = time.monotonic()
        table = _read_table(self._handle)
        took_s = time.monotonic() - began_s
        shown = show(self._bundle(table, ""), raw=True, display_id=True)
        self._shell.events.register("post_run_cell", self._stop_on_interrupt)
        arguments = (shown, table, took_s)
        threading.Thread(
            target=self._refresh, args=arguments, name="sparklag-table", daemon=True
        ).start()

    def stop(self, reason: str) -> None:
        """Refresh it no more. Idempotent, does not wait."""
        self._stop_reason = self._stop_reason or reason
        self._stopped.set()

    def _refresh(self, shown: Any, table: str, took_s: float) -> None:
        """`table` took so long to read."""
        deadline_s = time.monotonic() + MAX_LIVE_S
        try:
            while not self._stopped.wait(_pause_s(took_s)):
                began_s = time.monotonic()
                if self._handle.closed:
                    self.stop("the handle is closed")
                elif began_s > deadline_s:
                    self.stop(f"it was live for {MAX_LIVE_S / 60:g} min; display it again")
                else:
                    table = _read_table(self._handle)
                    took_s = time.monotonic() - began_s
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
        html = _document(self._handle, table, note)
        return {"text/html": html, "text/plain": repr(self._handle)}

    def _stop_on_interrupt(self, result: Any) -> None:
        if isinstance(getattr(result, "error_in_exec", None), KeyboardInterrupt):
            self.stop("the kernel was interrupted")


def _pause_s(took_s: float) -> float:
    return min(max(INTERVAL_S, took_s / _MAX_SHARE), _MAX_PAUSE_S)


def _read_table(handle: ShownHandle) -> str:
    try:
        table = lag_table(handle.lags(timeout_s=_TIMEOUT_S), epoch_ms())
    except SparklagError as error:
        table = paragraph(str(error))
    return f"{table}{paragraph(datetime.now().strftime('as of %H:%M:%S'))}"


def _document(handle: ShownHandle, table: str, note: str) -> str:
    return f"{paragraph(repr(handle))}{table}{paragraph(note) if note else ''}"
