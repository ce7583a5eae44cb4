"""A query that is started, killed and started again; what it wrote, and what is kept of it."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from sparklag_offsets.store import open_store
from sparklag_offsets.store.batch_record import BatchRecord
from tests.drivers.restarting import NAME
from tests.end_to_end import Topics, process
from tests.local_kafka import LocalKafka


class RestartingQuery:
    """It begins at the stored offsets, where its checkpoint is new."""

    def __init__(self, kafka: LocalKafka, topics: Topics, folder: Path, store: str) -> None:
        self.topics = topics
        self.checkpoint = folder / "checkpoint"
        self.store = store
        self._kafka = kafka
        self._folder = folder
        self._written = folder / "written.jsonl"

    def driver(self, way: str) -> AbstractContextManager[Any]:
        """As a process that is killed in the end. `way`: see tests.drivers.restarting."""
        where = (self._kafka.bootstrap_servers, self.topics.orders, str(self.checkpoint))
        arguments = (*where, self.store, str(self._written), way)
        log = self._folder / "driver.log"
        return process(
            self.topics, log, "tests.drivers.restarting", *arguments, stdout=subprocess.PIPE
        )

    def batches(self) -> list[tuple[int, list[tuple[int, int]]]]:
        """What it wrote, each batch once for each time: its number, and its records."""
        if not self._written.exists():
            return []
        lines = self._written.read_text(encoding="utf-8").splitlines()
        read = [json.loads(line) for line in lines]
        return [(number, [(at[0], at[1]) for at in places]) for number, places in read]

    def times_written(self) -> Counter[tuple[int, int]]:
        return Counter(place for _, places in self.batches() for place in places)

    def is_complete(self) -> bool:
        ends = self.topics.ends()
        return len(self.times_written()) == sum(ends.values())

    def kept(self) -> BatchRecord | None:
        async def ask() -> BatchRecord | None:
            store = open_store(self.store)
            try:
                result = await store.queries(NAME)
                newest = max(result, key=lambda query: query.last_at, default=None)
                return await store.as_of(newest.query_id, None) if newest is not None else None
            finally:
                await store.aclose()

        if self.store.startswith("sqlite") and not Path(self.store.partition("///")[2]).exists():
            return None
        return asyncio.run(ask())

    def has_kept(self, batch_id: int) -> bool:
        record = self.kept()
        return record is not None and record.batch_id >= batch_id
