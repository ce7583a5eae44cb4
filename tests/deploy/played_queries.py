"""Two queries played on a real broker, as their drivers would report them, each second a batch.

`orders` gains on its input. `slow` does not, and retention draws nearer to it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Final

from sparklag_schemas import Batch
from sparklag_schemas.timestamps import epoch_ms
from tests.messages import position
from tests.second_client import SecondClient
from tests.web.reported_query import ReportedQuery

_BACKLOG: Final = 6_000
_COME: Final = 20
_PROCESSED: Final = {"orders": 40, "slow": 1}
"""Records of a partition each second."""
_STEP_S: Final = 1.0


@contextmanager
def played_queries(client: SecondClient, topic: str, offsets_topic: str) -> Iterator[None]:
    """Play until the end of the block. What went wrong meanwhile is raised there."""
    partitions = range(client.partitions(topic))
    queries = [ReportedQuery(client, offsets_topic, topic, name) for name in _PROCESSED]
    for partition in partitions:
        client.produce(topic, [b"x"] * _BACKLOG, partition=partition)

    def play() -> None:
        for step in count(1):
            if over.wait(_STEP_S):
                return
            for partition in partitions:
                client.produce(topic, [b"x"] * _COME, partition=partition)
            client.delete_records(topic, dict.fromkeys(partitions, step * 10))
            for query in queries:
                _complete_batch(query, topic, len(partitions), step)

    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        played = pool.submit(play)
        try:
            yield
        finally:
            over.set()
            played.result()


def _complete_batch(query: ReportedQuery, topic: str, partitions: int, step: int) -> None:
    now_ms, rows = epoch_ms(), _PROCESSED[query.name]
    # The last partition is far behind the others.
    behind = [_BACKLOG // 2] * (partitions - 1) + [_BACKLOG // 4]
    reached = [offset + step * rows for offset in behind]
    planned = {number: offset + rows for number, offset in enumerate(reached)}
    query.complete_batch(
        *reached,
        sources=[position({topic: dict(enumerate(reached))}, planned={topic: planned})],
        planned_batch_id=step,
        activity="running",
        checkpoint_location=f"s3://bucket/checkpoints/{query.name}",
        batch=Batch(
            started_at=now_ms - 700,
            rows=rows * partitions,
            duration_ms=700,
            phases_ms={
                "latestOffset": 20,
                "addBatch": 500,
                "walCommit": 60,
                "commitOffsets": 50,
                "triggerExecution": 700,
            },
            rate_limited=True,
            state_rows=1_000 + step,
            state_memory_bytes=1_000_000 + 1_000 * step,
            watermark_at=now_ms - 60_000,
            max_event_time_at=now_ms - 5_000,
        ),
    )
