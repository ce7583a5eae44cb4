"""aiokafka's consumer for topics to which anybody may have written anything."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.structs import ConsumerRecord, TopicPartition

from sparklag_kafka.clients.client_options import TrustedBrokers, client_options
from sparklag_kafka.clients.untrusted_batches import OnUnreadable, reading_untrusted
from sparklag_kafka.errors import KAFKA_FAILURES, error_text
from sparklag_schemas.runtime.tasks import UnexpectedCancellation, cancel_and_wait, run_in_task
from sparklag_schemas.settings import ResolvedSettings

_log = logging.getLogger("sparklag.kafka")

_MAX_BYTES: Final = 16 * 1024 * 1024
"""Of record values in one `getmany`."""
_CHUNK_RECORDS: Final = 8
_MIN_STEP_TIMEOUT_S: Final = 0.2
_OFFSETS_GROUP: Final = "offsets"
"""Of aiokafka's connections to a broker, which have one for the coordinator too."""


class ContractConsumer(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka has no types
    """Skips batches that are larger than `limits.batch_mb`, decompressed, or cannot be read.

    It connects only to brokers that may see its password, and commits nothing by itself.
    """

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
        self._client.send = partial(_send, self._client.send)
        self._max_batch_bytes = settings.limits.batch_mb * 1024 * 1024
        self._on_unreadable = on_unreadable

    async def start(self) -> None:
        """See aiokafka."""
        with reading_untrusted(self._max_batch_bytes, self._on_unreadable):
            await super().start()

    async def leave_group(self, timeout_s: float, *first: Callable[[], Awaitable[None]]) -> None:
        """Take the steps in `first`, then stop: together in `timeout_s`, though each gets a short
        time at least. Failures are logged."""
        deadline_s = time.monotonic() + timeout_s
        for step in (*first, self.stop):
            task = asyncio.ensure_future(run_in_task(step()))
            timeout_s = max(_MIN_STEP_TIMEOUT_S, deadline_s - time.monotonic())
            try:
                await asyncio.wait({task}, timeout=timeout_s)
                if not task.done():
                    raise asyncio.TimeoutError
                task.result()
            except (*KAFKA_FAILURES, UnexpectedCancellation) as error:
                _log.warning("left the group uncleanly: %s", error_text(error))
            finally:
                await cancel_and_wait(task)

    async def stop(self) -> None:
        """Close it, and leave its group, also where a part of it fails to close.

        aiokafka's own awaits tasks that it has cancelled and raises their CancelledError, which
        would end whoever awaits it; and after a failure it leaves tasks that reconnect.
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
        """See aiokafka, which decompresses `max_records` of any size; this returns fewer large
        ones."""
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        count = size = 0
        while count < max_records and size < _MAX_BYTES:
            chunk_size = min(_CHUNK_RECORDS, max_records - count)
            chunk = await super().getmany(
                *partitions, timeout_ms=timeout_ms, max_records=chunk_size
            )
            for partition, records in chunk.items():
                taken.setdefault(partition, []).extend(records)
                count += len(records)
                size += sum(len(record.value or b"") for record in records)
            if not chunk or self._subscription.reassignment_in_progress:
                break
            # From here on it does not wait: what was taken stays this member's.
            timeout_ms = 0
        return taken


async def _send(
    send: Callable[..., Awaitable[Any]], node_id: int, request: Any, **options: Any
) -> Any:
    """Offsets are requested on a connection of their own: a broker answers in order, and a fetch at
    the log end waits for half a second."""
    if isinstance(request, OffsetRequest):
        options = {"group": _OFFSETS_GROUP}
    return await send(node_id, request, **options)


def _tasks_of(parts: Iterable[object]) -> Iterator[asyncio.Task[object]]:
    for part in parts:
        for value in vars(part).values():
            for item in value if isinstance(value, set) else (value,):
                if isinstance(item, asyncio.Task):
                    yield item
