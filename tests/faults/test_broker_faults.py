"""A broker, the way to it, or a topic fails."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.faults.report import Row
from tests.faults.scene import Scene, scene
from tests.faults.toxiproxy import Proxy, Toxiproxy
from tests.faults.truth import Clock
from tests.local_kafka import LocalKafka
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900)]


def test_broker_restarted(fault_report: Row, tmp_path: Path) -> None:
    with LocalKafka() as broker, scene(broker.bootstrap_servers, tmp_path) as stage:
        stage.start_on_topics()
        stage.flow(3)
        with stage.fault():
            broker.restart()
        stage.finish(fault_report)


@pytest.mark.parametrize("fault", ["cut", "delayed 700 ms", "black-holed"])
def test_connection(fault: str, fault_report: Row, toxiproxy: Toxiproxy, tmp_path: Path) -> None:
    def break_it(proxy: Proxy) -> float:
        match fault:
            case "cut":
                proxy.cut()
                return 5.0
            case "black-holed":
                proxy.swallow()
                return 15.0
            case _:
                proxy.delay(0.7)
                return 10.0

    proxy = toxiproxy.proxy("kafka")
    # An answer is on its way for 0.7 s: when in between the offset was read nobody can know.
    clock = Clock(tolerance_s=1.8) if fault.startswith("delayed") else Clock()
    with LocalKafka(advertised=proxy.address) as broker:
        proxy.lead_to(broker.bootstrap_servers)
        with scene(
            proxy.address, tmp_path, past_proxy=broker.internal_servers, clock=clock
        ) as stage:
            stage.start_on_topics()
            stage.flow(3)
            with stage.fault():
                stage.flow(break_it(proxy))
                proxy.heal()
            stage.finish(fault_report)


METADATA_S = 2.0
"""How often the service looks at what topics there are, here."""
REPORTED_S = 60.0
_ADMIN_S = 60.0


def await_reported(stage: Scene, topic: str, status: str) -> float:
    """Wait until every partition of the topic has this status; how long that took, seconds."""
    began_s = time.time()
    wait_for(lambda: stage.statuses(topic) == {status}, f"{topic} is {status}", REPORTED_S)
    return time.time() - began_s


def test_topic_deleted(kafka: LocalKafka, fault_report: Row, tmp_path: Path) -> None:
    with scene(kafka.bootstrap_servers, tmp_path, metadata_interval_s=METADATA_S) as stage:
        gone, _kept = stage.start_on_topics()
        stage.flow(2)
        with stage.fault():
            stage.delete(gone)
        reported_s = await_reported(stage, gone, "GONE")
        stage.flow(3)
        stage.finish(fault_report, f"GONE is reported after {reported_s:.1f} s")


@pytest.mark.parametrize("length", ["shorter", "longer"])
def test_topic_deleted_and_recreated(
    length: str, kafka: LocalKafka, fault_report: Row, tmp_path: Path
) -> None:
    with scene(kafka.bootstrap_servers, tmp_path, metadata_interval_s=METADATA_S) as stage:
        topic, _other = stage.start_on_topics()
        if length == "shorter":
            for number in range(3):
                stage.workload.send(topic, number, 20_000)
        stage.flow(2)
        with stage.fault():
            stage.delete(topic)
            reached = stage.workload.ends(topic)
            stage.create_anew(topic)
            if length == "longer":
                for number, end in reached.items():
                    stage.workload.send(topic, number, end + 5_000)
            reported_s = await_reported(stage, topic, "RECREATED")
            stage.flow(2)
            # With failOnDataLoss=false Spark goes on: from the new topic's beginning where the old
            # position is past its end, else at the old one as if nothing had happened.
            positions = {
                number: 0 if length == "shorter" else end for number, end in reached.items()
            }
            stage.drivers.go_on(topic, positions)
        stage.finish(fault_report, f"RECREATED is reported after {reported_s:.1f} s")


def test_partitions_added(kafka: LocalKafka, fault_report: Row, tmp_path: Path) -> None:
    with scene(kafka.bootstrap_servers, tmp_path, metadata_interval_s=METADATA_S) as stage:
        topic, _other = stage.start_on_topics()
        with stage.fault():
            admin = AdminClient({"bootstrap.servers": stage.client.bootstrap_servers})
            admin.create_partitions([NewPartitions(topic, 5)])[topic].result(_ADMIN_S)
            wait_for(lambda: stage.client.partitions(topic) == 5, "the topic has 5 partitions")
            stage.workload.fill_more(topic, (3, 4))
            # Spark sees them with the next batch it plans.
            stage.flow(3)
            stage.drivers.read_partitions(topic, (3, 4))
        # The idle query too reads them now; the dead one never will.
        stage.drivers.go_on(topic)
        stage.finish(fault_report)


def test_consumer_lag_deleted(kafka: LocalKafka, fault_report: Row, tmp_path: Path) -> None:
    with scene(kafka.bootstrap_servers, tmp_path) as stage:
        stage.start_on_topics(services=2)
        stage.flow(2)
        with stage.fault():
            # It may be there again before anybody could see it gone.
            admin = AdminClient({"bootstrap.servers": stage.client.bootstrap_servers})
            admin.delete_topics([stage.lag_topic])[stage.lag_topic].result(_ADMIN_S)
            stage.recorder.read_anew()
        stage.finish(fault_report)


def test_malformed_messages(kafka: LocalKafka, fault_report: Row, tmp_path: Path) -> None:
    chance = random.Random(1_000)
    with scene(kafka.bootstrap_servers, tmp_path) as stage:
        stage.start_on_topics()
        keys = [query_id.encode() for query_id in stage.drivers.queries]
        with stage.fault():
            for number in range(1_000):
                key = chance.choice([*keys, b"\xff\xfe", None])
                stage.drivers.produce_raw(malformed(number, chance), key)
                if number % 20 == 0:
                    stage.flow(0.1)
        stage.finish(fault_report)

        def committed_to_the_end() -> bool:
            ends = stage.client.end_offsets(stage.offsets_topic)
            return stage.client.committed(stage.group_id, stage.offsets_topic) == {
                number: end for number, end in ends.items() if end > 0
            }

        # None of them holds up what comes after it.
        wait_for(committed_to_the_end, "everything read is committed")


def malformed(number: int, chance: random.Random) -> bytes:
    """A message that does not keep the contract, each in another way."""
    kinds = (
        b"",
        b"\x00",
        b"null",
        b"[]",
        b"{}",
        b"{" * 200,
        b'"a string"',
        b'{"query_id": 7}',
        b'{"schema_version": "9.0", "unknown": true}',
        b'{"query_id": "a", "run_id": "b", "observed_at": "soon", "cause": "progress"}',
        b'{"query_id": "a", "run_id": "b", "observed_at": 1, "cause": ["progress"],'
        b' "observation_id": "c", "sources": []}',
        b"[" * 100_000,
        b'{"query_id": "\xff\xfe"}',
        chance.randbytes(300),
    )
    return kinds[number % len(kinds)]
