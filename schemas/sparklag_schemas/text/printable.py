"""Foreign text made safe for log lines, terminals, table cells and labels. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

_LISTED: Final = 3


def printable(text: str, at_most: int = 500) -> str:
    """The first `at_most` characters of `text`, on one line. Other than printable characters are
    escaped as in Python: control characters, line ends, bidirectional marks, lone surrogates."""
    if len(text) > at_most:
        text = text[: at_most - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def first_few(
    names: Sequence[str],
    separator: str = ", ",
    *,
    rest: str = "more",
    show: Callable[[str], str] = str,
) -> str:
    """The first three of `names`, formatted by `show`, and the number of the others."""
    more = f" and {len(names) - _LISTED} {rest}" if len(names) > _LISTED else ""
    return separator.join(map(show, names[:_LISTED])) + more
