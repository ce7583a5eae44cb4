"""Drivers of many queries, from outside: what they write to `processed-offsets`.

Not Spark: positions that advance as a query's would, so that a fault meets a known history.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, Message

from sparklag_schemas import Batch, Cause, Observation, SourcePosition, encode
from sparklag_schemas.messages.headers import observation_headers
from sparklag_schemas.messages.topics import key_of
from tests.faults.history import Observed, QueryHistory
from tests.faults.lasting_producer import LastingProducer
from tests.faults.workload import FLUSH_S, Workload

_TICK_S: Final = 0.02

Positions = dict[str, dict[int, int]]


@dataclass
class Query:
    name: str
    topics: Sequence[str]
    history: QueryHistory
    processed: Positions
    lives: dict[str, int]
    """Topic to the number of the life that its positions are of."""
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    batch_id: int = -1
    processed_at_ms: int | None = None
    held: bool = False
    """No batch completes: only the driver's clock writes."""
    dead: bool = False
    due_s: float = 0.0

    @property
    def query_id(self) -> str:
        return self.history.query_id


class Drivers:
    """Writes a progress of each query every `interval_s`, and refreshes of those that are held.

    `read_from` is what the queries say their brokers are. `seed` decides how far each batch gets.
    """

    def __init__(
        self,
        workload: Workload,
        bootstrap_servers: str,
        offsets_topic: str,
        *,
        read_from: str,
        seed: int,
        interval_s: float,
        heartbeat_s: float,
    ) -> None:
        self._workload = workload
        self._offsets_topic = offsets_topic
        self._read_from = read_from
        self._chance = random.Random(seed)
        self._interval_s = interval_s
        self._heartbeat_s = heartbeat_s
        self._producer = LastingProducer(bootstrap_servers)
        self.queries: dict[str, Query] = {}
        self.clock_offset_s = 0
        """How far the drivers' own clocks are from the true one."""
        self._flowing = False
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="drivers", daemon=True)
        self._failure: str | None = None

    def __enter__(self) -> Drivers:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.purge()

    @property
    def histories(self) -> dict[str, QueryHistory]:
        return {query_id: query.history for query_id, query in self.queries.items()}

    def add(self, *topics: str, held: bool = False, dead: bool = False) -> Query:
        """A new query on `topics`, from their beginning.

        One that is held, or dead, has completed its first batch before.
        """
        query = Query(
            name=f"query-{len(self.queries) + 1}",
            topics=topics,
            history=QueryHistory(str(uuid.UUID(int=self._chance.getrandbits(128), version=4))),
            processed={topic: dict.fromkeys(self._workload.ends(topic), 0) for topic in topics},
            lives={topic: self._workload.life(topic) for topic in topics},
            held=held,
            dead=dead,
        )
        with self._lock:
            self.queries[query.query_id] = query
            if held or dead:
                self._advance(query)
        return query

    def start(self) -> None:
        self._flowing = True

    def hold(self, topic: str | None = None) -> None:
        """No more batches of the queries that read `topic`, or of any."""
        with self._lock:
            for query in self._of(topic):
                query.held = True

    def go_on(self, topic: str | None = None, processed: Mapping[int, int] | None = None) -> None:
        """Batches again; from `processed` on in that topic, where it is given."""
        with self._lock:
            for query in self._of(topic):
                query.held = False
                query.due_s = 0.0
                if topic is not None and processed is not None:
                    query.processed = {**query.processed, topic: dict(processed)}
                    query.lives = {**query.lives, topic: self._workload.life(topic)}

    def read_partitions(self, topic: str, partitions: Collection[int]) -> None:
        with self._lock:
            for query in self._of(topic):
                positions = query.processed[topic]
                added = {number: 0 for number in partitions if number not in positions}
                query.processed = {**query.processed, topic: {**positions, **added}}

    def produce_raw(self, value: bytes, key: bytes | None) -> None:
        self._producer.produce(self._written, topic=self._offsets_topic, value=value, key=key)

    def finish(self) -> None:
        with self._lock:
            self._flowing = False
            for query in self.queries.values():
                if not query.held and not query.dead:
                    self._advance(query)
        self.flush()

    def flush(self) -> None:
        assert self._producer.flush(FLUSH_S), "observations are not acknowledged"
        assert self._failure is None, self._failure

    def _of(self, topic: str | None) -> list[Query]:
        living = (query for query in self.queries.values() if not query.dead)
        return [query for query in living if topic is None or topic in query.topics]

    def _run(self) -> None:
        while not self._stop.wait(_TICK_S):
            self._producer.poll()
            if not self._flowing:
                continue
            now_s = time.monotonic()
            with self._lock:
                for query in self.queries.values():
                    if query.dead or now_s < query.due_s:
                        continue
                    if query.held:
                        query.due_s = now_s + self._heartbeat_s
                        self._write(query, "refresh")
                    else:
                        # Not in step with one another, nor with the service.
                        query.due_s = now_s + self._interval_s * self._chance.uniform(0.7, 1.3)
                        self._advance(query)

    def _advance(self, query: Query) -> None:
        rows = 0
        moved: Positions = {}
        for topic in query.topics:
            ends = self._workload.ends(topic)
            positions = query.processed[topic]
            moved[topic] = {
                number: self._chance.randint(at, max(at, ends.get(number, 0)))
                for number, at in positions.items()
            }
            rows += sum(moved[topic].values()) - sum(positions.values())
        query.processed = moved
        query.batch_id += 1
        query.processed_at_ms = self._now_ms()
        batch = Batch(
            started_at=query.processed_at_ms - 200,
            rows=max(0, rows),
            duration_ms=200,
            phases_ms={"addBatch": 150},
        )
        self._write(query, "progress", batch)

    def _write(self, query: Query, cause: Cause, batch: Batch | None = None) -> None:
        observation = Observation(
            observation_id=str(uuid.uuid4()),
            query_id=query.query_id,
            run_id=query.run_id,
            query=query.name,
            cause=cause,
            observed_at=self._now_ms(),
            processed_at=query.processed_at_ms,
            batch_id=query.batch_id if query.batch_id >= 0 else None,
            batch=batch,
            checkpoint_location=f"file:/checkpoints/{query.name}",
            sources=[
                SourcePosition(
                    source=0,
                    processed=query.processed,
                    topics=list(query.topics),
                    bootstrap_servers=self._read_from,
                )
            ],
        )
        history = query.history
        history.observed.append(
            Observed(
                query_id=query.query_id,
                observed_at_ms=observation.observed_at,
                processed=query.processed,
                lives=query.lives,
                sent_s=time.time(),
            )
        )
        headers: list[Any] = list(observation_headers(observation))
        self._producer.produce(
            partial(self._delivered, history, len(history.observed) - 1),
            topic=self._offsets_topic,
            value=encode(observation),
            key=key_of(query.query_id),
            headers=headers,
        )

    def _delivered(
        self, history: QueryHistory, index: int, error: KafkaError | None, message: Message
    ) -> None:
        offset = message.offset()
        self._written(error, message)
        if offset is not None:
            history.acknowledged[index] = offset

    def _written(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = f"an observation was not written: {error}"

    def _now_ms(self) -> int:
        return int((time.time() + self.clock_offset_s) * 1000)
