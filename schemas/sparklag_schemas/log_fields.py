"""The fields of a log line about one query."""

from __future__ import annotations

from typing import Final, Protocol

FIELDS: Final = ("query", "query_id", "cause", "reason")


class _OfQuery(Protocol):
    @property
    def query_id(self) -> str: ...

    @property
    def query(self) -> str | None: ...


def log_fields(subject: _OfQuery | str, reason: str | None = None) -> dict[str, str | None]:
    """`extra` of a log call about the query of `subject`: a message, its state, or only its id.

    `cause` is that of the message; null: no message is at hand, as is `query` for a query without a
    name. `reason` is what went wrong, if anything did.
    """
    if isinstance(subject, str):
        fields = {"query": None, "query_id": subject, "cause": None}
    else:
        cause = getattr(subject, "cause", None)
        fields = {"query": subject.query, "query_id": subject.query_id, "cause": cause}
    return fields if reason is None else {**fields, "reason": reason}
