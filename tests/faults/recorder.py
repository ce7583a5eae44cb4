"""Reads the whole of `consumer-lag` while a fault runs, by librdkafka, as JSON and no more."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from tests.waiting import wait_for

_POLL_S: Final = 0.1
_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True)
class Published:
    query_id: str
    event: dict[str, Any] | None
    """None: a tombstone."""
    place: tuple[int, int, int]
    """Life of the topic, partition, offset."""
    arrived_s: float
    """Epoch seconds."""


class Recorder:
    """Keeps every record of `topic`, from its beginning on, once that is there."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self._options: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "fault-recorder",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 1_000,
            "allow.auto.create.topics": False,
            "log_level": 0,
        }
        self._topic = topic
        self._partitions = partitions
        self._life = 0
        self._wanted_life = 0
        self._records: list[Published] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def __enter__(self) -> Recorder:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def records(self) -> list[Published]:
        with self._lock:
            return list(self._records)

    def read_anew(self) -> None:
        """The topic was deleted: read the next one of its name from its beginning."""
        self._wanted_life += 1
        wait_for(lambda: self._life == self._wanted_life, "the recorder begins anew", _TIMEOUT_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            consumer = Consumer(self._options)
            try:
                consumer.assign(
                    [TopicPartition(self._topic, n, 0) for n in range(self._partitions)]
                )
                self._life = self._wanted_life
                while not self._stop.is_set() and self._life == self._wanted_life:
                    self._take(consumer)
            finally:
                consumer.close()

    def _take(self, consumer: Consumer) -> None:
        for message in consumer.consume(100, timeout=_POLL_S):
            key, value = message.key(), message.value()
            partition, offset = message.partition(), message.offset()
            # Errors say that a broker is away or the topic is not there yet: it goes on by itself.
            if message.error() is not None or key is None or offset is None:
                continue
            event = None if value is None else json.loads(value)
            place = (self._life, partition or 0, offset)
            published = Published(key.decode(), event, place, time.time())
            with self._lock:
                self._records.append(published)
