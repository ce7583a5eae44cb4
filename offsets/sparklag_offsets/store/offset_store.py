"""The interface of the offset store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from sparklag_offsets.errors import UnusableStore
from sparklag_offsets.store.batch_record import BatchRecord, RecordedQuery
from sparklag_schemas.text.locations import shown_url


class Retention(NamedTuple):
    """What is deleted: never the last record of a query."""

    before_ms: int | None = None
    """Records that completed earlier, epoch milliseconds. None: no limit."""
    keep_batches: int | None = None
    """All but so many records of each query. None: no limit."""


class OffsetStore(Protocol):
    """Every method but `aclose` raises StoreError. After an error the next call reconnects."""

    shown: str
    """Its URL without credentials."""

    async def prepare(self) -> None:
        """Create the tables, or migrate older ones. Concurrent calls are safe."""

    async def newest(self, query_ids: Collection[str]) -> dict[str, BatchRecord]:
        """The last record of each query that has one."""

    async def write(self, records: Sequence[BatchRecord]) -> None:
        """Write all of them, or the first of them. An existing record stays as it is."""

    async def as_of(self, query_id: str, at_ms: int | None) -> BatchRecord | None:
        """The last record that completed at or before `at_ms`; None: the last of all."""

    async def queries(self, name_or_id: str | None = None) -> list[RecordedQuery]:
        """The query of that id, or those of that name; without either, all. By name, then id."""

    async def prune(self, retention: Retention) -> int:
        """Delete old records; returns how many."""

    async def aclose(self) -> None:
        """Disconnect; bounded in time. An error of the database is suppressed."""


def unusable_url(url: str, error: Exception, form: str) -> UnusableStore:
    """The error for a URL that a driver refuses; `form` is what a valid one looks like."""
    # The driver's text may quote a password in the URL.
    reason = "" if "@" in url or "?" in url else f": {error}"
    return UnusableStore(
        f"the offset store's URL {shown_url(url)} cannot be used{reason}; it takes {form}"
    )
