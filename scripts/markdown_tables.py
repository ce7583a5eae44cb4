"""Cells and rows of a table in Markdown."""

from __future__ import annotations

import json
from typing import Any


def code(value: Any) -> str:
    """`value` as JSON, in the font of code."""
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def row(*cells: str) -> str:
    """One line of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
