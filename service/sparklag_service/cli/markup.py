"""Text of others on a terminal."""

from __future__ import annotations

import rich.markup

from sparklag_schemas.printable import printable


def escape(text: str) -> str:
    """`text` as rich prints it on one line: neither its markup nor the terminal obeys it."""
    return rich.markup.escape(printable(text, len(text)))
