"""What the offset store does, in whichever database it is."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from sparklag_offsets.store.batch_record import BatchRecord, KeptQuery


class Retention(NamedTuple):
    """What is deleted: never the last record of a query."""

    before_ms: int | None = None
    """What completed earlier, epoch milliseconds. None: whatever its age."""
    keep_batches: int | None = None
    """More than so many records of one query. None: any number."""


class OffsetStore(Protocol):
    """Every method raises StoreError. After an error the next call connects anew."""

    shown: str
    """Its URL without credentials."""

    async def prepare(self) -> None:
        """Make the tables, or bring older ones up to date. Several may do it at once."""

    async def newest(self, query_ids: Collection[str]) -> dict[str, BatchRecord]:
        """The last record of each query that has one."""

    async def keep(self, records: Sequence[BatchRecord]) -> None:
        """Write them, all or the first of them. One that is there already stays as it is."""

    async def as_of(self, query_id: str, at_ms: int | None) -> BatchRecord | None:
        """The last record that completed at that moment or before; None: the last of all."""

    async def queries(self, name_or_id: str | None = None) -> list[KeptQuery]:
        """The query of that id, or those of that name; without either, all. By name, then id."""

    async def prune(self, retention: Retention) -> int:
        """Delete old records; how many there were."""

    async def aclose(self) -> None:
        """Disconnect; bounded in time."""
