"""Three real brokers, of which the second and the third may be killed, frozen and restarted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.local_kafka import LocalKafka
from tests.waiting import wait_for

_REPLICATED: Final = {
    "default.replication.factor": "3",
    # Of the own topics too, which are created without a setting of their own.
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    # A leader that comes back takes its partitions again within seconds, not minutes.
    "leader.imbalance.check.interval.seconds": "5",
}
_ADMIN_TIMEOUT_S: Final = 60.0


class KafkaCluster:
    """Nodes 1, 2 and 3. The first is the controller too: a test leaves that one alone.

    A broker that does not answer for 4 s loses its leaderships to the others.
    """

    def __init__(self) -> None:
        self.brokers: dict[int, LocalKafka] = {}
        self._stack = ExitStack()
        self._admin_client: AdminClient | None = None

    def __enter__(self) -> KafkaCluster:
        with ExitStack() as stack:
            first = stack.enter_context(LocalKafka(properties=_REPLICATED))
            self.brokers[1] = first
            for node in (2, 3):
                self.brokers[node] = stack.enter_context(
                    LocalKafka(properties=_REPLICATED, joins=first, node_id=node)
                )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        # A frozen one is thawed to be stopped.
        self._stack.close()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    def create(self, topic: str, replicas: Sequence[Sequence[int]], **config: str) -> str:
        """Create a topic: the brokers of each partition, its leader first. Its name."""
        settings = {name.replace("_", "."): value for name, value in config.items()}
        new = NewTopic(
            topic,
            num_partitions=len(replicas),
            replica_assignment=[list(brokers) for brokers in replicas],
            config=settings,
        )
        try:
            self._admin().create_topics([new])[topic].result(_ADMIN_TIMEOUT_S)
        except KafkaException as error:
            # librdkafka asks again where the first answer was that the controller is not there yet.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        leaders = {number: brokers[0] for number, brokers in enumerate(replicas)}
        wait_for(lambda: self.leaders(topic) == leaders, f"topic {topic} has its leaders")
        return topic

    def leaders(self, topic: str) -> dict[int, int]:
        """Partition to node; -1 for one that has no leader."""
        results = self._admin().list_topics(topic, timeout=_ADMIN_TIMEOUT_S).topics[topic]
        return {number: partition.leader for number, partition in results.partitions.items()}

    def in_sync(self, topic: str) -> bool:
        results = self._admin().list_topics(topic, timeout=_ADMIN_TIMEOUT_S).topics[topic]
        return all(len(p.isrs) == len(p.replicas) for p in results.partitions.values())

    def coordinator_of(self, group: str) -> int:
        described = self._admin().describe_consumer_groups([group])[group]
        return int(described.result(_ADMIN_TIMEOUT_S).coordinator.id)

    def _admin(self) -> AdminClient:
        # Of the first broker, which is always there; the others' addresses come from it. It is
        # kept: one that is let go answers nothing any more.
        if self._admin_client is None:
            self._admin_client = AdminClient(
                {"bootstrap.servers": self.brokers[1].bootstrap_servers, "log_level": 0}
            )
        return self._admin_client
