"""Text of others, as it may stand in a log line, on a terminal, in a cell or a label. Pure."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

_LONGEST_LINE: Final = 10_000
_LISTED: Final = 3


def printable(text: str, at_most: int = 500) -> str:
    """`text` on one line and of at most so many characters before what is not printable (control
    characters, line ends, escapes, bidirectional marks, half surrogates) is escaped as in Python.
    """
    if len(text) > at_most:
        text = text[: at_most - 1] + "…"
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def first_few(
    names: Sequence[str],
    separator: str = ", ",
    *,
    rest: str = "more",
    show: Callable[[str], str] = str,
) -> str:
    """Three of `names`, as `show` gives them, and how many more there are."""
    more = f" and {len(names) - _LISTED} {rest}" if len(names) > _LISTED else ""
    return separator.join(map(show, names[:_LISTED])) + more


class PrintableFormatter(logging.Formatter):
    """One line for a message, whatever is in it, and one for each of a trace."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        """See logging."""
        record.message = printable(record.message, _LONGEST_LINE)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802  # logging's name
        """See logging."""
        lines = super().formatException(ei).splitlines()
        return "\n".join(printable(line, _LONGEST_LINE) for line in lines)
