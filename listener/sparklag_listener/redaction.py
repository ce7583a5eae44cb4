"""Takes passwords out of what others wrote, before it leaves the driver. Pure."""

from __future__ import annotations

import re

_NAMED = re.compile(
    r"""((?:password|passwd|secret|access[._-]?key|[._-]token)(?:[._-]?key)?["']?\s*(?:=|:|->)\s*)"""
    r"""("[^"]*"|'[^']*'|[^\s,;)}\]]+)""",
    re.IGNORECASE,
)
_IN_ADDRESS = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")


def redact(text: str) -> str:
    """`text` without the values of what is named like a secret, nor passwords in addresses."""
    return _IN_ADDRESS.sub("***", _NAMED.sub(r"\1***", text))
