"""Takes secrets out of locations: paths and URLs of files, URLs of servers. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from sparklag_schemas.text import redaction
from sparklag_schemas.text.redaction import HIDDEN

_MAX_LOCATION: Final = 1_200
"""Characters. A longer location is not shortened: its end may be half of a secret."""
_URL: Final = re.compile(
    r"[\s\"'<(\[]*((?:[A-Za-z][\w+.\-]{0,30}(?::|%3A))*)((?:[/\\]|%2F)*)", re.ASCII | re.IGNORECASE
)
_HOST: Final = re.compile(r"^([^:/\\\[]*|\[[^\]/]*\]):(?!\d{1,5}(?:[/\\?#;]|$))[^/\\]*")
_CUT: Final = re.compile(r"[?#;]|%(?:25){0,3}(?:3F|23|3B)(?=[^/=%]{1,60}(?:=|%))", re.IGNORECASE)
_CUT_OF_PATH: Final = re.compile(r"(?:[?#;]|%(?:3F|23|3B))[^/=%]{1,60}(?:=|%3D)", re.IGNORECASE)
_FOLDER: Final = re.compile(r"(?<![^/\\])(?:(?=[^/\\]{0,15}[=:@%(])[^/\\]+|[^/\\]{16,})")
_NAME: Final = re.compile(r"(?<![\w.\-])([\w.\-]+)(?:[=:(]|%3D)", re.IGNORECASE)
_NO_PORT: Final = re.compile(r":(?!\d{1,5}(?:,|$))[^:,\]]+(?=,|$)")
"""A password, where the host is missing."""


@lru_cache(1_024)
def redact_location(location: str) -> str:
    """A path or URL without user, query, fragment and parameters, and without what looks like a
    secret in a folder's name."""
    url = _URL.match(location) if len(location) <= _MAX_LOCATION else None
    if url is None:
        return HIDDEN
    rest = redaction.after_user(url[0], location[url.end() :], "")
    # Without a slash the scheme may be a user.
    scheme = url[0] if url[2] or rest == location[url.end() :] else ""
    if url[2] in ("//", "\\\\"):
        rest = _HOST.sub(r"\1", rest)
    cut = (_CUT if url[1] else _CUT_OF_PATH).search(rest)
    rest = rest if cut is None else rest[: cut.start()]
    is_path = len(url[1]) < 3 or url[1].lower().startswith("file:")
    is_url = not is_path or "//" in rest or not url[2]
    return scheme + _FOLDER.sub(lambda folder: _safe_folder(folder[0], is_url), rest)


def _safe_folder(folder: str, is_url: bool) -> str:
    at = redaction.after_at(folder)
    if is_url and at and redaction.COLON.search(folder, 0, at):
        folder = f"{HIDDEN}@{folder[at:]}"
    for name in _NAME.finditer(folder):
        kind = redaction.kind_of(name[1])
        if kind == "secret" or (kind == "unsure" and redaction.ODD.match(folder, name.end())):
            folder = folder[: name.end()] + HIDDEN
            break
    folder = redaction.KNOWN_TOKENS.sub(HIDDEN, folder)
    # Without capitals it is more likely the name of a temporary folder.
    is_name = re.fullmatch("[0-9a-z_-]{1,39}", folder)
    return folder if is_name else redaction.hide_random(folder)


def shown_url(url: str) -> str:
    """A URL of a server without a password, or options that may hold one.

    Stricter than `redact_location`: in a path a colon and an `@` may be names.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        # The scheme is missing: all of the text may be a password.
        scheme, rest = "", url
    # Everything before the last @: passwords may be unescaped, and users may have an @.
    credentials, at, host_and_path = rest.rpartition("@")
    user, colon, _ = credentials.partition(":")
    hidden = f"{user}:{HIDDEN}@" if colon else user + at
    hosts, slash, path = re.split("[?#]", host_and_path)[0].partition("/")
    return f"{scheme}{separator}{hidden}{_NO_PORT.sub(f':{HIDDEN}', hosts)}{slash}{path}"
