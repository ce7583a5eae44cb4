"""Records that flow into real topics, and the exact history of every log's end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, Message

from tests.faults.history import LogHistory, TopicLife
from tests.faults.lasting_producer import LastingProducer

_TICK_S: Final = 0.02
FLUSH_S: Final = 300.0
"""A producer may wait for ten seconds more than once, on a busy machine, or be replaced."""


class Workload:
    """Writes `rate` records per second, spread over all partitions of its topics, on a thread.

    `bootstrap_servers` should lead to the brokers past any proxy: faults are the service's.
    """

    def __init__(self, bootstrap_servers: str, rate: float) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._rate = rate
        self.lives: dict[str, list[TopicLife]] = {}
        self._producers: dict[str, LastingProducer] = {}
        self._flowing: list[tuple[str, int]] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="workload", daemon=True)
        self._failure: str | None = None

    def __enter__(self) -> Workload:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        for producer in self._producers.values():
            producer.purge()
        self._producers.clear()

    def fill(self, topic: str, partitions: Iterable[int]) -> None:
        logs = {number: LogHistory() for number in partitions}
        with self._lock:
            self.lives.setdefault(topic, []).append(TopicLife(time.time(), logs))
            # Another producer: it knows nothing of the topic that was there before.
            self._producers[topic] = LastingProducer(self._bootstrap_servers)
            self._flowing += [(topic, number) for number in logs]

    def fill_more(self, topic: str, partitions: Iterable[int]) -> None:
        self.dry(topic)
        with self._lock:
            # Another producer: the first one would not know of them for a while.
            self._producers[topic] = LastingProducer(self._bootstrap_servers)
            logs = self.lives[topic][-1].logs
            logs.update({number: LogHistory() for number in partitions})
            self._flowing += [(topic, number) for number in logs]

    def dry(self, topic: str) -> None:
        """Send nothing more there; return once everything sent is acknowledged."""
        with self._lock:
            self._flowing = [place for place in self._flowing if place[0] != topic]
            producer = self._producers[topic]
        assert producer.flush(FLUSH_S), f"records for {topic} are not acknowledged"
        self._check()

    def died(self, topic: str) -> None:
        self.lives[topic][-1].died_s = time.time()

    def send(self, topic: str, partition: int, count: int) -> None:
        with self._lock:
            for _ in range(count):
                self._send(topic, partition)
            producer = self._producers[topic]
        assert producer.flush(FLUSH_S), f"records for {topic} are not acknowledged"

    def ends(self, topic: str) -> dict[int, int]:
        with self._lock:
            return {number: log.end for number, log in self.lives[topic][-1].logs.items()}

    def life(self, topic: str) -> int:
        return len(self.lives[topic]) - 1

    def stop(self) -> None:
        for topic in {topic for topic, _ in self._flowing}:
            self.dry(topic)
        self._check()

    def _run(self) -> None:
        began, due, turn = time.monotonic(), 0, 0
        while not self._stop.wait(_TICK_S):
            with self._lock:
                flowing = list(self._flowing)
                producers = list(self._producers.values())
                wanted = int((time.monotonic() - began) * self._rate)
                for _ in range(wanted - due if flowing else 0):
                    turn += 1
                    self._send(*flowing[turn % len(flowing)])
                due = wanted
            for producer in producers:
                producer.poll()

    def _send(self, topic: str, partition: int) -> None:
        log = self.lives[topic][-1].logs[partition]
        log.sending(time.time())
        self._producers[topic].produce(
            partial(self._delivered, log), topic=topic, value=b"x" * 20, partition=partition
        )

    def _delivered(self, log: LogHistory, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = f"a record was not written: {error}"
            return
        offset = message.offset()
        assert offset is not None
        log.acknowledged(offset + 1, time.time())

    def _check(self) -> None:
        assert self._failure is None, self._failure
