"""Foreign text is printed on one line, and controls no terminal."""

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
def test_characters_that_are_not_printable_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(text).isprintable()


def test_a_long_text_is_cut() -> None:
    assert printable("x" * 1_000, 10) == "x" * 9 + "…"
    assert printable("x" * 10, 10) == "x" * 10
