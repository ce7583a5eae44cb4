"""What the routes answer from."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from sparklag_offsets.errors import StoreError
from sparklag_offsets.restore.restoration import RestoredOffsets, RestoreOptions, from_store
from sparklag_offsets.store.offset_store import OffsetStore
from sparklag_offsets.store.stores import open_store
from sparklag_schemas import Settings
from sparklag_service.history.history import History
from sparklag_service.live.hub import LiveHub
from sparklag_service.view.service_state import ServiceState


class StoredOffsets:
    """Reads the offset store; connects at the first request."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._store: OffsetStore | None = None

    @property
    def is_configured(self) -> bool:
        """Whether there is a store."""
        return self._settings.store.url is not None

    async def restore(
        self, query: str, at_ms: int | None, options: RestoreOptions
    ) -> RestoredOffsets:
        """See `from_store`. Only where a store is configured."""
        assert self._settings.store.url is not None
        if self._store is None:
            self._store = open_store(self._settings.store.url)
        return await from_store(self._store, query, at_ms, options, self._settings)

    async def aclose(self) -> None:
        """Disconnect."""
        if self._store is not None:
            # The store may be gone already.
            with suppress(StoreError):
                await self._store.aclose()


class Backend(ServiceState, Protocol):
    """The service's state, and the parts that only REST reads."""

    @property
    def live(self) -> LiveHub:
        """Of the live streams."""

    @property
    def history(self) -> History:
        """Totals over time."""

    @property
    def stored_offsets(self) -> StoredOffsets:
        """Where queries were."""
