"""Text of others on a terminal."""

from __future__ import annotations

import json

import rich.markup

from sparklag_schemas.printable import printable


def escape(text: str) -> str:
    """`text` as rich prints it on one line: neither its markup nor the terminal obeys it."""
    return rich.markup.escape(printable(text, len(text)))


def ascii_json(document: bytes | str) -> str:
    """The same JSON on one line and in ASCII: the terminal obeys nothing in it either."""
    return json.dumps(json.loads(document))
