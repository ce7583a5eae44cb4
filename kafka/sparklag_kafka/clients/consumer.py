"""How topics of ours are read: by aiokafka's consumer, whatever may stand there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.structs import ConsumerRecord, TopicPartition

from sparklag_kafka.clients.connection import TrustedBrokers, client_options
from sparklag_kafka.clients.untrusted_batches import reading_untrusted
from sparklag_schemas.settings import ResolvedSettings

_MOST_BYTES: Final = 16 * 1024 * 1024
_AT_ONCE: Final = 8

OnUnreadable = Callable[[int, int, str], None]
"""First offset of a batch, the offset after it, and why it cannot be read."""


class ContractConsumer(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka has no types
    """Passes over batches that are larger than `limits.batch_mb`, decompressed, or that cannot be
    read. It connects only to brokers that may see its password, and commits nothing by itself."""

    _closed: bool

    def __init__(
        self,
        settings: ResolvedSettings,
        on_unreadable: OnUnreadable,
        **options: Any,
    ) -> None:
        """`options` are aiokafka's. Raises SettingsError as `client_options` does."""
        super().__init__(
            **client_options(settings.access),
            enable_auto_commit=False,
            metadata_max_age_ms=round(settings.metadata_interval_s * 1000),
            **options,
        )
        TrustedBrokers(settings.access).guard(self._client)
        self._most_bytes = settings.limits.batch_mb * 1024 * 1024
        self._on_unreadable = on_unreadable

    async def start(self) -> None:
        """See aiokafka."""
        with reading_untrusted(self._most_bytes, self._on_unreadable):
            await super().start()

    async def stop(self) -> None:
        """Close it, and leave its group, whatever goes wrong on the way.

        aiokafka's own awaits tasks that it has cancelled and raises their CancelledError, which
        would end whoever awaits it; and what it fails at leaves tasks that connect anew.
        """
        if self._closed:
            return
        self._closed = True
        parts: list[Any] = [part for part in (self._coordinator, self._fetcher) if part is not None]
        try:
            for part in parts:
                closing = asyncio.gather(part.close(), return_exceptions=True)
                for failure in await closing:
                    if isinstance(failure, Exception):
                        raise failure
        finally:
            for task in _tasks_of(parts):
                task.cancel()
            await self._client.close()

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int = 500
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """See aiokafka; of large records fewer. It would decompress `max_records` of any size."""
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        count = size = 0
        while count < max_records and size < _MOST_BYTES:
            at_once = min(_AT_ONCE, max_records - count)
            more = await super().getmany(*partitions, timeout_ms=timeout_ms, max_records=at_once)
            for partition, records in more.items():
                taken.setdefault(partition, []).extend(records)
                count += len(records)
                size += sum(len(record.value or b"") for record in records)
            if not more or self._subscription.reassignment_in_progress:
                break
            # From here on it does not wait: what was taken stays this member's.
            timeout_ms = 0
        return taken


def _tasks_of(parts: Iterable[object]) -> Iterator[asyncio.Task[object]]:
    for part in parts:
        for held in vars(part).values():
            for one in held if isinstance(held, set) else (held,):
                if isinstance(one, asyncio.Task):
                    yield one
