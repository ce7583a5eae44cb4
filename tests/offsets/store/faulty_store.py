"""A store that fails at will."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sparklag_offsets.errors import StoreAway
from sparklag_offsets.store.batch_record import BatchRecord, OffsetStore, Retention


class FaultyStore:
    """Passes calls on. Reads always succeed."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self.away = False
        self.loses_answers = False
        """It writes, and raises as if it had not."""
        self.requested: list[set[str]] = []
        self.shown = store.shown
        self.as_of, self.queries, self.aclose = store.as_of, store.queries, store.aclose

    async def newest(self, query_ids: Collection[str]) -> dict[str, BatchRecord]:
        self.requested.append(set(query_ids))
        return await self._store.newest(query_ids)

    async def prepare(self) -> None:
        self._check("prepared")
        await self._store.prepare()

    async def write(self, records: Sequence[BatchRecord]) -> None:
        self._check("written")
        await self._store.write(records)
        if self.loses_answers:
            raise StoreAway("it went away")

    async def prune(self, retention: Retention) -> int:
        self._check("pruned")
        return await self._store.prune(retention)

    def _check(self, what: str) -> None:
        if self.away:
            raise StoreAway(f"it cannot be {what}")
