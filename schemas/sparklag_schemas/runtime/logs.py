"""Fields of log records, and a limit for lines that repeat."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Final, Protocol

AUDIT: Final = "sparklag_service.audit"
"""The logger of changes and refused requests: each is logged."""
FIELDS: Final = ("query", "query_id", "cause", "reason")


class _Subject(Protocol):
    @property
    def query_id(self) -> str: ...

    @property
    def query(self) -> str | None: ...


def log_fields(subject: _Subject | str, reason: str | None = None) -> dict[str, str | None]:
    """`extra` of a log call about a query. `subject`: a message about it, its state, or its id.

    `cause` is null without a message, `query` for a query without a name. `reason` is what went
    wrong, if anything did.
    """
    if isinstance(subject, str):
        fields = {"query": None, "query_id": subject, "cause": None}
    else:
        cause = getattr(subject, "cause", None)
        fields = {"query": subject.query, "query_id": subject.query_id, "cause": cause}
    return fields if reason is None else {**fields, "reason": reason}


_MOST: Final = 5
_WINDOW_S: Final = 60.0
_KEPT: Final = 10_000
"""The limit of windows: anybody may write messages with any query id."""
_LONGEST: Final = 500


class _Window:
    """A limited record: its first occurrence, and the number of all."""

    def __init__(self, first: logging.LogRecord, ends_s: float) -> None:
        self.ends_s = ends_s
        self.count = 0
        self.logger, self.level = first.name, first.levelno
        self.text = first.getMessage().partition("\n")[0][:_LONGEST]
        self.fields = {name: getattr(first, name) for name in FIELDS if hasattr(first, name)}


class RepeatLimit(logging.Filter):
    """Passes the first five records a minute of the same logger, template and query. After that
    minute one more record has the number of suppressed records, also as its field `repeated`.
    Records of DEBUG are not limited.

    Thread-safe. A timer thread logs the numbers where nothing else is logged; the rest is logged at
    the end of the process.
    """

    def __init__(self, window_s: float = _WINDOW_S) -> None:
        super().__init__()
        self._window_s = window_s
        self._windows: OrderedDict[Hashable, _Window] = OrderedDict()
        """Sorted by their ends."""
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        atexit.register(self.report_all)

    def filter(self, record: logging.LogRecord) -> bool:
        if hasattr(record, "repeated") or record.name == AUDIT or record.levelno <= logging.DEBUG:
            return True
        # asyncio appends a trace and other details to its message.
        template = str(record.msg).partition("\n")[0]
        key = (record.name, template, getattr(record, "query_id", None))
        with self._lock:
            ended = self._take_ended()
            window = self._windows.get(key)
            if window is None:
                window = self._windows[key] = _Window(record, time.monotonic() + self._window_s)
                if len(self._windows) > _KEPT:
                    ended.append(self._windows.popitem(last=False)[1])
            window.count += 1
            passes = window.count <= _MOST
            if not passes and self._timer is None:
                self._start_timer(window.ends_s)
        _report(ended)
        return passes

    def report_all(self) -> None:
        """Report the suppressed records; for the end of the process."""
        with self._lock:
            left, self._windows = list(self._windows.values()), OrderedDict()
        _report(left)

    def _take_ended(self) -> list[_Window]:
        ended = []
        now_s = time.monotonic()
        while self._windows and next(iter(self._windows.values())).ends_s <= now_s:
            ended.append(self._windows.popitem(last=False)[1])
        return ended

    def _start_timer(self, at_s: float) -> None:
        self._timer = threading.Timer(max(0.0, at_s - time.monotonic()), self._on_timer)
        self._timer.daemon = True
        self._timer.start()

    def _on_timer(self) -> None:
        with self._lock:
            self._timer = None
            ended = self._take_ended()
            limited = (window for window in self._windows.values() if window.count > _MOST)
            if (window := next(limited, None)) is not None:
                self._start_timer(window.ends_s)
        _report(ended)


def _report(windows: Iterable[_Window]) -> None:
    for window in windows:
        repeated = window.count - _MOST
        if repeated > 0:
            logging.getLogger(window.logger).log(
                window.level,
                "… %d more like this: %s",
                *(repeated, window.text),
                extra={**window.fields, "repeated": repeated},
            )
