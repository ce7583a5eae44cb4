"""When queries were measured, by their lag events."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection
from typing import Final

from aiokafka import AIOKafkaConsumer
from msgspec import Struct, json

_DEADLINE_S: Final = 180.0


class _Event(Struct):
    query_id: str
    measured_at: int


class FirstMeasured:
    """Reads a lag topic inside of a `with`, from the topic's end on, on a loop of its own."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._measured: dict[str, list[int]] = {}
        self._reading, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._read(),))

    def __enter__(self) -> FirstMeasured:
        self._thread.start()
        self._reading.wait(_DEADLINE_S)
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        self._thread.join()

    def all_after(self, query_ids: Collection[str], after_ms: int, since_ms: int) -> list[float]:
        """Wait until each was measured after `after_ms`; seconds from `since_ms` to its first
        measurement of that time. Raises TimeoutError."""
        deadline, seconds = time.monotonic() + _DEADLINE_S, list[float]()
        while time.monotonic() < deadline:
            first_ms = [self._first(query_id, after_ms) for query_id in query_ids]
            seconds = [(at_ms - since_ms) / 1000 for at_ms in first_ms if at_ms is not None]
            if len(seconds) == len(first_ms):
                return seconds
            time.sleep(0.5)
        raise TimeoutError(f"{len(query_ids) - len(seconds):,} queries are not measured again")

    def _first(self, query_id: str, after_ms: int) -> int | None:
        measured = self._measured.get(query_id, ())
        return min((at_ms for at_ms in measured if at_ms > after_ms), default=None)

    async def _read(self) -> None:
        decoder = json.Decoder(_Event)
        async with AIOKafkaConsumer(
            self._topic, bootstrap_servers=self._bootstrap_servers, auto_offset_reset="latest"
        ) as consumer:
            await consumer.seek_to_end()
            self._reading.set()
            while not self._stopping.is_set():
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    for record in records:
                        if record.value is not None:
                            event = decoder.decode(record.value)
                            times_ms = self._measured.setdefault(event.query_id, [])
                            times_ms.append(event.measured_at)
