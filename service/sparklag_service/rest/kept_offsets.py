"""Answers from the offset store: where a query was."""

from __future__ import annotations

from sparklag_offsets.errors import StoreError
from sparklag_offsets.restore.restoration import RestoredOffsets, RestoreOptions, from_store
from sparklag_offsets.store.offset_store import OffsetStore, open_store
from sparklag_schemas import Settings


class KeptOffsets:
    """Connects when it is asked first."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._store: OffsetStore | None = None

    @property
    def are_kept(self) -> bool:
        """Whether there is a store."""
        return self._settings.store.url is not None

    async def restore(
        self, query: str, at_ms: int | None, wanted: RestoreOptions
    ) -> RestoredOffsets:
        """See `from_store`. Only where they are kept."""
        assert self._settings.store.url is not None
        if self._store is None:
            self._store = open_store(self._settings.store.url)
        return await from_store(self._store, query, at_ms, wanted, self._settings)

    async def aclose(self) -> None:
        """Disconnect."""
        if self._store is not None:
            try:
                await self._store.aclose()
            except StoreError:
                # It has gone before.
                return
