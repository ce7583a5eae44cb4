"""Kafka through librdkafka: a client that shares no code with the one under test."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._group import ConsumerGroupDescription
from confluent_kafka.admin._metadata import PartitionMetadata
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.loop_guard import own_work
from tests.waiting import wait_for

_TIMEOUT_S = 120.0
_LEADER_MOVES = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError._TRANSPORT,
}
"""Between the end of one leader and the first answer of the next."""


class SecondClient:
    """Creates, writes, reads and measures. `bootstrap_servers` speak PLAINTEXT."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._options: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
        self._admin = AdminClient(self._options)
        self._producer = Producer(
            {
                **self._options,
                "linger.ms": 0,
                # A record that is sent again, as on a topic just made, keeps its place. Of two
                # requests in flight the broker may take the second alone, and call the first one,
                # when it comes again, a duplicate: then its records are lost.
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": 1,
                "message.max.bytes": 64 * 1024 * 1024,
                # Kafka's own: librdkafka has another by default.
                "partitioner": "murmur2_random",
            }
        )

    @own_work
    def create(self, topic: str, partitions: int = 1, **config: str) -> str:
        """Create a topic and return once it can be used; its name. Settings with underscores."""
        settings = {name.replace("_", "."): value for name, value in config.items()}
        new = NewTopic(topic, partitions, 1, config=settings)
        self._admin.create_topics([new])[topic].result(_TIMEOUT_S)
        wait_for(lambda: self.partitions(topic) == partitions, f"topic {topic} is there")
        return topic

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(_TIMEOUT_S)
        wait_for(lambda: topic not in self.topics(), f"topic {topic} is gone")

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have `total` partitions and return once it has."""
        self._admin.create_partitions([NewPartitions(topic, total)])[topic].result(_TIMEOUT_S)
        wait_for(lambda: self.partitions(topic) == total, f"{topic} has {total} partitions")

    def delete_records(self, topic: str, before: dict[int, int]) -> None:
        """Delete records before these offsets, as retention does."""
        wanted = [TopicPartition(topic, number, offset) for number, offset in before.items()]
        for deleted in self._admin.delete_records(wanted).values():
            deleted.result(_TIMEOUT_S)

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=_TIMEOUT_S).topics)

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 when it is not there."""
        results = self._admin.list_topics(timeout=_TIMEOUT_S).topics.get(topic)
        return len(results.partitions) if results is not None and results.error is None else 0

    def described(self, topic: str) -> dict[int, PartitionMetadata]:
        return self._admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions

    def leaders(self, topic: str) -> dict[int, int]:
        return {number: each.leader for number, each in self.described(topic).items()}

    @own_work
    def produce(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        key: bytes | None = None,
        partition: int = -1,
        at_ms: int = 0,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> None:
        """Write records and return once all are acknowledged. `at_ms`: their time; 0 is now."""
        failures: list[KafkaError] = []

        def delivered(failure: KafkaError | None, _: Message) -> None:
            if failure is not None:
                failures.append(failure)

        for value in values:
            self._producer.produce(
                *(topic, value),
                key=key,
                partition=partition,
                timestamp=at_ms,
                headers=list(headers),
                on_delivery=delivered,
            )
        assert self._producer.flush(_TIMEOUT_S) == 0
        # Given up is gone from the queue too.
        assert not failures, failures

    def end_offsets(self, topic: str) -> dict[int, int]:
        with self._consumer() as consumer:
            return {
                number: _log_end(consumer, TopicPartition(topic, number))
                for number in range(self.partitions(topic))
            }

    @own_work
    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The offsets a group has committed; partitions without one are left out."""
        wanted = [TopicPartition(topic, number) for number in range(self.partitions(topic))]
        with self._consumer(group) as consumer:
            return {
                results.partition: results.offset
                for results in consumer.committed(wanted, timeout=_TIMEOUT_S)
                if results.offset >= 0
            }

    def commit(self, group: str, offsets: dict[str, dict[int, int]]) -> None:
        """Commit for a group without joining it: topic, partition, next offset."""
        wanted = [
            TopicPartition(topic, number, offset)
            for topic, numbers in offsets.items()
            for number, offset in numbers.items()
        ]
        with self._consumer(group) as consumer:
            consumer.commit(offsets=wanted, asynchronous=False)

    def described_group(self, group: str) -> ConsumerGroupDescription:
        described = self._admin.describe_consumer_groups([group])[group].result(_TIMEOUT_S)
        assert isinstance(described, ConsumerGroupDescription)
        return described

    def delete_group(self, group: str) -> None:
        self._admin.delete_consumer_groups([group])[group].result(_TIMEOUT_S)

    @own_work
    def read_all(self, topic: str) -> list[Message]:
        """Every record that is in the topic now, by partition and offset."""
        ends = self.end_offsets(topic)
        results: list[Message] = []
        with self._consumer() as consumer:
            consumer.assign([TopicPartition(topic, number, 0) for number in ends])
            reached = dict.fromkeys(ends, 0)
            deadline = time.monotonic() + _TIMEOUT_S
            while any(reached[number] < end for number, end in ends.items()):
                assert time.monotonic() < deadline, f"{topic} could not be read to its end"
                for message in consumer.consume(500, timeout=0.2):
                    assert message.error() is None, message.error()
                    reached[_number(message.partition())] = _number(message.offset()) + 1
                    results.append(message)
        return sorted(results, key=lambda m: (_number(m.partition()), _number(m.offset())))

    @contextmanager
    def _consumer(self, group: str = "second-client") -> Iterator[Consumer]:
        consumer = Consumer({**self._options, "group.id": group, "enable.auto.commit": False})
        try:
            yield consumer
        finally:
            consumer.close()


def _log_end(consumer: Consumer, partition: TopicPartition) -> int:
    results: list[int] = []

    def is_read() -> bool:
        try:
            _, end = consumer.get_watermark_offsets(partition, timeout=_TIMEOUT_S, cached=False)
        except KafkaException as failure:
            if failure.args[0].code() not in _LEADER_MOVES:
                raise
            return False
        results.append(end)
        return True

    wait_for(is_read, f"the log end of {partition}", _TIMEOUT_S)
    return results[0]


def _number(value: int | None) -> int:
    # A record that was read has both; the types say so only of one that was not.
    assert value is not None
    return value
