"""What the clients of the REST interface share with it: paths and problem documents."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import msgspec


def path_segment(name: str) -> str:
    """`name` as a segment of a path. `.` and `..` are encoded too: as they are, a client takes them
    for steps in the path."""
    return (
        name.replace(".", "%2E")
        if name in (".", "..")
        else quote(name, "", errors="surrogateescape")
    )


class ReceivedProblem(msgspec.Struct, frozen=True):
    """Of a problem document (RFC 9457), what a client reads."""

    type: str
    detail: str
    query_ids: Sequence[str] = ()

    @property
    def kind(self) -> str:
        """Names the problem, and never changes."""
        return self.type.rpartition("/")[2]

    @property
    def text(self) -> str:
        """For people, with the ids of the queries it is about."""
        return f"{self.detail}: {', '.join(self.query_ids)}" if self.query_ids else self.detail
