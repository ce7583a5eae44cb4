"""Paths and problem documents of the REST interface, for its clients."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import msgspec


def path_segment(name: str) -> str:
    """`name` as a segment of a path. `.` and `..` are encoded too, since clients resolve them."""
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return quote(name, "", errors="surrogateescape")


class ReceivedProblem(msgspec.Struct, frozen=True):
    """The fields of a problem document (RFC 9457) that a client reads."""

    type: str
    detail: str
    query_ids: Sequence[str] = ()
    alike: Sequence[str] = ()

    @property
    def kind(self) -> str:
        """The name of the problem, which never changes."""
        return self.type.rpartition("/")[2]

    @property
    def text(self) -> str:
        """The problem for people, with the ids of the queries that it is about, or alike names."""
        names = f"alike: {', '.join(self.alike)}" if self.alike else ", ".join(self.query_ids)
        return f"{self.detail}: {names}" if names else self.detail
