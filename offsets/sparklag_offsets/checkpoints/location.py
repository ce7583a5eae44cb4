"""Where a checkpoint is, as one writes it in many ways. Pure."""

from __future__ import annotations

import re
from typing import Final

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):(?=/)")
_SAME_AS: Final = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's names of file systems that others reach by another."""
LOCAL: Final = ""


def normal_location(location: str) -> str:
    """One way to write it, to compare by: `file:/x`, `file:///x/` give `/x`; `s3a://` `s3://`.

    Idempotent. Nothing is looked up, and nothing is decoded: Spark does not escape either.
    """
    scheme, rest = split_scheme(location)
    if scheme == LOCAL:
        return _tidy(rest)
    authority, path = "", rest
    if rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        path = slash + path
    return f"{scheme}://{authority}{_tidy(path) if path.strip('/') else ''}"


def split_scheme(location: str) -> tuple[str, str]:
    """The scheme, as fsspec calls it (LOCAL for a path), and what follows it."""
    found = _SCHEME.match(location)
    if found is None:
        return LOCAL, location
    scheme, rest = found.group(1).lower(), location[found.end() :]
    if scheme in ("file", "local"):
        if rest.startswith("//") and not rest.startswith("///"):
            host, _, path = rest[2:].partition("/")
            if host in ("", "localhost"):
                rest = f"/{path}"
        # A path that itself looks like a URL cannot be, once more.
        return LOCAL, "/" + rest.lstrip("/")
    return _SAME_AS.get(scheme, scheme), rest


def fixed_prefix(pattern: str) -> str | None:
    """The folder before the first `*`. None: the pattern is a path."""
    before, star, _ = normal_location(pattern).partition("*")
    return (before.rpartition("/")[0] or "/") if star else None


def _tidy(path: str) -> str:
    return re.sub("/{2,}", "/", path).rstrip("/") or path[:1]
