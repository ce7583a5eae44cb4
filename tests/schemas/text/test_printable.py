"""What others wrote stands on one line, and does nothing to a terminal."""

from __future__ import annotations

import pytest

from sparklag_schemas.text.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders of Zürich 東京", "orders of Zürich 東京"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x1b[2J\x07", r"\x1b[2J\x07"),
        ("\u202eevil\u2066", r"\u202eevil\u2066"),
        ("half \ud800", r"half \ud800"),
        ("\u2028\x85", r"\u2028\x85"),
        ("", ""),
    ],
)
def test_what_is_not_printable_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(text).isprintable()


def test_what_is_long_is_cut() -> None:
    assert printable("x" * 1_000, 10) == "x" * 9 + "…"
    assert printable("x" * 10, 10) == "x" * 10
