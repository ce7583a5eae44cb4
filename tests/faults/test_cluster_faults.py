"""One of three brokers fails: what the others lead goes on."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

import pytest

from tests.faults.kafka_cluster import KafkaCluster
from tests.faults.report import Row
from tests.faults.scene import OWN_PARTITIONS, Scene, own_names, scene
from tests.faults.truth import Span, gaps, newest_first_observed
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900)]

FROZEN_S = 30.0
FRESHNESS_RATIO = 2.0


@contextmanager
def replicated_scene(
    cluster: KafkaCluster, folder: Path, nodes: Sequence[int] = (1, 2, 3)
) -> Iterator[Scene]:
    """Own topics with replicas on all of `nodes`, and their leaders spread over them."""
    names = own_names(uuid.uuid4().hex[:8])
    replicas = [rotated(nodes[number % len(nodes)], nodes) for number in range(OWN_PARTITIONS)]
    enough = str(len(nodes) - 1)
    for topic, policy in (("offsets_topic", "delete"), ("lag_topic", "compact,delete")):
        cluster.create(names[topic], replicas, cleanup_policy=policy, min_insync_replicas=enough)
    with scene(cluster.bootstrap_servers, folder, names=names) as stage:
        yield stage


def rotated(leader: int, nodes: Sequence[int] = (1, 2, 3)) -> list[int]:
    return [leader, *(node for node in nodes if node != leader)]


def fill(stage: Scene, cluster: KafkaCluster, replicas: Sequence[Sequence[int]]) -> str:
    topic = cluster.create(f"orders-{uuid.uuid4().hex[:8]}", replicas, min_insync_replicas="1")
    stage.workload.fill(topic, range(len(replicas)))
    return topic


def await_in_sync(stage: Scene, cluster: KafkaCluster) -> None:
    own = (stage.offsets_topic, stage.lag_topic, "__consumer_offsets")
    wait_for(lambda: all(cluster.in_sync(topic) for topic in own), "all replicas are in sync")


def test_one_of_three_brokers_killed(
    cluster: KafkaCluster, fault_report: Row, tmp_path: Path
) -> None:
    with replicated_scene(cluster, tmp_path) as stage:
        topics = [fill(stage, cluster, [rotated(leader) for leader in (1, 2, 3)]) for _ in "12"]
        for topic in topics:
            for _ in range(4):
                stage.drivers.add(topic)
        stage.start()
        stage.flow(3)
        # The one that the group depends on, where that may be.
        victim = cluster.brokers[max(2, cluster.coordinator_of(stage.group_id))]
        with stage.fault():
            victim.kill()
            killed_s = time.time()
            # With one broker dead everything is to be right again: the others took over.
            stage.settle(killed_s + 8)
            without_s = time.time() - killed_s
            victim.start()
        await_in_sync(stage, cluster)
        stage.finish(fault_report, f"right again {without_s:.0f} s after the kill, one dead")


def test_one_of_three_brokers_frozen(
    cluster: KafkaCluster, fault_report: Row, tmp_path: Path
) -> None:
    with replicated_scene(cluster, tmp_path) as stage:
        topics = [fill(stage, cluster, [rotated(leader) for leader in (1, 2, 3)]) for _ in "12"]
        for topic in topics:
            for _ in range(4):
                stage.drivers.add(topic)
        stage.start()
        stage.flow(3)
        with stage.fault():
            cluster.brokers[3].freeze()
            frozen_s = time.time()
            # It leads nothing any more after 4 s: then all is to be right without it.
            stage.settle(frozen_s + 8)
            without_s = time.time() - frozen_s
            stage.flow(max(0.0, FROZEN_S - without_s))
            cluster.brokers[3].thaw()
        await_in_sync(stage, cluster)
        stage.finish(fault_report, f"right again {without_s:.0f} s after it froze")


def test_topics_led_by_healthy_brokers_while_one_is_frozen(
    cluster: KafkaCluster, fault_report: Row, tmp_path: Path
) -> None:
    # No replica of our own topics is on the frozen one: Kafka itself would acknowledge nothing
    # there until the frozen replica is given up.
    with replicated_scene(cluster, tmp_path, (1, 3)) as stage:
        healthy = fill(stage, cluster, [[1], [3], [1]])
        sick = fill(stage, cluster, [[1], [2], [3]])
        watched = [stage.drivers.add(healthy).query_id for _ in range(8)]
        for _ in range(2):
            stage.drivers.add(sick)
        stage.start()
        before = Span(time.time(), time.time() + FROZEN_S)
        stage.flow(FROZEN_S)
        coordinator = cluster.coordinator_of(stage.group_id)
        with stage.fault():
            cluster.brokers[2].freeze()
            stage.flow(FROZEN_S)
            cluster.brokers[2].thaw()
        await_in_sync(stage, cluster)
        usual, then = (gaps_of(stage, watched, span) for span in (before, stage.span))
        note = (
            f"gaps of the healthy, then and before: median {median(then):.2f}/{median(usual):.2f}"
            f" s, p95 {p95(then):.2f}/{p95(usual):.2f} s, longest {max(then):.1f}/{max(usual):.1f}"
            f" s; group coordinated by {coordinator}"
        )
        stage.finish(fault_report, note)
        # Each of them has events while the other broker is frozen, as often as before.
        assert median(then) <= FRESHNESS_RATIO * median(usual), note
        assert max(then) < FROZEN_S / 2, note


def gaps_of(stage: Scene, queries: Sequence[str], span: Span) -> list[float]:
    records = sorted(stage.recorder.records, key=lambda record: record.place)
    accepted, _ = newest_first_observed(records)
    return [gap for query in queries for gap in gaps(accepted[query], span)]


def p95(values: Sequence[float]) -> float:
    return quantiles(values, n=20)[-1]


def test_partition_without_leader(cluster: KafkaCluster, fault_report: Row, tmp_path: Path) -> None:
    with replicated_scene(cluster, tmp_path) as stage:
        topic = fill(stage, cluster, [[1], [3], [1]])
        others = fill(stage, cluster, [[1], [2]])
        for read in (topic, topic, others, others):
            stage.drivers.add(read)
        stage.start()
        stage.flow(2)
        with stage.fault():
            cluster.brokers[3].kill()
            wait_for(lambda: cluster.leaders(topic)[1] == -1, "the partition has no leader")
            leaderless_s = time.time()
            wait_for(
                lambda: goes_on(stage, topic, 1, leaderless_s), "its other partitions go on", 60
            )
            went_on_s = time.time() - leaderless_s
            stage.flow(5)
            cluster.brokers[3].start()
        await_in_sync(stage, cluster)
        stage.finish(fault_report, f"the other partitions fresh after {went_on_s:.0f} s")


def goes_on(stage: Scene, topic: str, leaderless: int, since_s: float) -> bool:
    newest = stage.newest()
    for query_id in stage.drivers.queries:
        event = newest[query_id].event
        assert event is not None
        for part in event["topics"]:
            for partition in part["partitions"]:
                if (part["topic"], partition["partition"]) == (topic, leaderless):
                    continue
                read_ms = partition.get("measured_at") or event["measured_at"]
                if partition.get("lag") is None or read_ms / 1000 < since_s:
                    return False
    return True
