"""Locations of checkpoints and patterns of them, normalized and matched. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from sparklag_offsets.errors import CheckpointNotFound

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):(?=/)")
_HADOOP_ALIASES: Final = {"s3a": "s3", "s3n": "s3"}
LOCAL: Final = ""


def normal_location(location: str) -> str:
    """The normal form, to compare by: `file:/x`, `file:///x/` give `/x`; `s3a://` gives `s3://`.

    Idempotent. No I/O, and no decoding: Spark does not escape either.
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
    """The scheme as fsspec calls it (LOCAL for a path), and the rest."""
    match = _SCHEME.match(location)
    if match is None:
        return LOCAL, location
    scheme, rest = match.group(1).lower(), location[match.end() :]
    if scheme in ("file", "local"):
        if rest.startswith("//") and not rest.startswith("///"):
            host, _, path = rest[2:].partition("/")
            if host in ("", "localhost"):
                rest = f"/{path}"
        # One slash: a path that itself looks like a URL must not be parsed as one again.
        return LOCAL, "/" + rest.lstrip("/")
    return _HADOOP_ALIASES.get(scheme, scheme), rest


def fixed_prefix(pattern: str) -> str | None:
    """The folder before the first `*`. None: the pattern is a path."""
    before, star, _ = normal_location(pattern).partition("*")
    return (before.rpartition("/")[0] or "/") if star else None


def match_folders(
    root: str,
    path: str,
    list_folders: Callable[[str, bool], Iterable[str]],
    display_pattern: str,
) -> list[str]:
    """Folders below `root` that match `path`, a path with `*`, each within one name.

    `list_folders` takes a folder and whether it is before the first `*`, returns the names of its
    folders, and may raise FileNotFoundError. Raises CheckpointNotFound where a folder before the
    first `*` is missing.
    """
    folders, is_fixed = [root], True
    for part in path.strip("/").split("/"):
        if "*" not in part:
            folders = [f"{folder}/{part}" for folder in folders]
            continue
        # Hidden names match only a pattern that begins with a dot, as in a shell.
        text = ".*".join(map(re.escape, part.split("*")))
        matcher = re.compile(text if part.startswith(".") else rf"(?!\.){text}", re.DOTALL)
        matched: list[str] = []
        for folder in folders:
            try:
                names = list_folders(folder, is_fixed)
            except FileNotFoundError as error:
                if is_fixed:
                    raise CheckpointNotFound(
                        f"{display_pattern}: there is no folder {folder}"
                    ) from error
                continue
            matched += [f"{folder}/{name}" for name in names if matcher.fullmatch(name)]
        folders, is_fixed = matched, False
    return sorted(folders)


def _tidy(path: str) -> str:
    return re.sub("/{2,}", "/", path).rstrip("/") or path[:1]
