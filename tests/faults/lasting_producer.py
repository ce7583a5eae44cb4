"""A producer that is replaced when it stalls.

librdkafka's, idempotent or not, may wait for ever after its broker restarted, with the
broker there (librdkafka#4976 is one report): that is no fault of what is tested here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

OnDelivery = Callable[[KafkaError | None, Message], None]

_STUCK_S: Final = 60.0
_PURGED: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
"""The error of a producer that was replaced."""
_FLUSH_STEP_S: Final = 1.0


class LastingProducer:
    """Keeps the order of a partition, loses nothing, and may write a record twice."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._options = {
            "bootstrap.servers": bootstrap_servers,
            "acks": "all",
            "max.in.flight.requests.per.connection": 1,
            "message.timeout.ms": 0,
            "socket.timeout.ms": 10_000,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 1_000,
            "partitioner": "murmur2_random",
            "linger.ms": 0,
            "log_level": 0,
        }
        self._lock = threading.RLock()
        self._numbers = count()
        self._waiting: dict[int, tuple[dict[str, Any], OnDelivery]] = {}
        """What is not acknowledged, in its order."""
        self._progress_s = time.monotonic()
        self._producer = Producer(self._options)

    def produce(self, on_delivery: OnDelivery, **record: Any) -> None:
        with self._lock:
            if not self._waiting:
                self._progress_s = time.monotonic()
            number = next(self._numbers)
            self._waiting[number] = (record, on_delivery)
            self._send(number)

    def poll(self) -> None:
        """Call `on_delivery` of what was acknowledged; to be called often."""
        self._producer.poll(0)
        with self._lock:
            if self._waiting and time.monotonic() > self._progress_s + _STUCK_S:
                self.purge()
                self._producer = Producer(self._options)
                self._progress_s = time.monotonic()
                for number in self._waiting:
                    self._send(number)

    def flush(self, timeout_s: float) -> bool:
        deadline_s = time.monotonic() + timeout_s
        while self._waiting and time.monotonic() < deadline_s:
            self._producer.flush(_FLUSH_STEP_S)
            self.poll()
        return not self._waiting

    def purge(self) -> None:
        self._producer.purge()

    def _send(self, number: int) -> None:
        record, _ = self._waiting[number]
        self._producer.produce(**record, on_delivery=partial(self._delivered, number))

    def _delivered(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None and error.code() in _PURGED:
            return
        with self._lock:
            self._progress_s = time.monotonic()
            _, on_delivery = self._waiting.pop(number, (None, None))
        if on_delivery is not None:
            on_delivery(error, message)
