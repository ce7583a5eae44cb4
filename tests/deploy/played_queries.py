"""Two queries played on a real broker, as their drivers would report them, each second a batch.

`orders` gains on its input. `slow` does not, and retention draws nearer to it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from sparklag_schemas import Batch, Observation, SourcePosition, encode
from sparklag_schemas.timestamps import epoch_ms
from sparklag_schemas.topics import key_of
from tests.second_client import SecondClient

_BACKLOG: Final = 6_000
_COME: Final = 20
_PROCESSED: Final = {"orders": 40, "slow": 1}
"""Records of a partition each second."""
_STEP_S: Final = 1.0


@contextmanager
def played_queries(client: SecondClient, topic: str, offsets_topic: str) -> Iterator[None]:
    """Play until the end of the block. What went wrong meanwhile is raised there."""
    player = _Player(client, topic, offsets_topic)
    player.fill()
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        played = pool.submit(player.play, over)
        try:
            yield
        finally:
            over.set()
            played.result()


class _Player:
    def __init__(self, client: SecondClient, topic: str, offsets_topic: str) -> None:
        self._client = client
        self._topic = topic
        self._offsets_topic = offsets_topic
        self._partitions = range(client.partitions(topic))
        self._ids = {name: str(uuid.uuid4()) for name in _PROCESSED}
        self._runs = {name: str(uuid.uuid4()) for name in _PROCESSED}
        self._step = 0

    def fill(self) -> None:
        """What there is to process from the start."""
        for partition in self._partitions:
            self._client.produce(self._topic, [b"x"] * _BACKLOG, partition=partition)

    def play(self, over: threading.Event) -> None:
        while not over.wait(_STEP_S):
            self._advance()

    def _advance(self) -> None:
        self._step += 1
        for partition in self._partitions:
            self._client.produce(self._topic, [b"x"] * _COME, partition=partition)
        self._client.delete_records(self._topic, dict.fromkeys(self._partitions, self._step * 10))
        for name in self._ids:
            self._client.produce(
                self._offsets_topic,
                [encode(self._observation(name))],
                key=key_of(self._ids[name]),
            )

    def _observation(self, name: str) -> Observation:
        now_ms = epoch_ms()
        # The last partition is far behind the others.
        reached = {
            partition: _BACKLOG // (4 if partition == self._partitions[-1] else 2)
            + self._step * _PROCESSED[name]
            for partition in self._partitions
        }
        planned = {partition: offset + _PROCESSED[name] for partition, offset in reached.items()}
        return Observation(
            observation_id=str(uuid.uuid4()),
            query_id=self._ids[name],
            run_id=self._runs[name],
            query=name,
            cause="progress",
            observed_at=now_ms,
            processed_at=now_ms,
            batch_id=self._step,
            planned_batch_id=self._step + 1,
            activity="running",
            checkpoint_location=f"s3://bucket/checkpoints/{name}",
            batch=Batch(
                started_at=now_ms - 700,
                rows=_PROCESSED[name] * len(self._partitions),
                duration_ms=700,
                phases_ms={
                    "latestOffset": 20,
                    "addBatch": 500,
                    "walCommit": 60,
                    "commitOffsets": 50,
                    "triggerExecution": 700,
                },
                rate_limited=True,
                state_rows=1_000 + self._step,
                state_memory_bytes=1_000_000 + 1_000 * self._step,
                watermark_at=now_ms - 60_000,
                max_event_time_at=now_ms - 5_000,
            ),
            sources=[
                SourcePosition(
                    source=0, processed={self._topic: reached}, planned={self._topic: planned}
                )
            ],
        )
