"""`examples/java/LagReader.java`: Avro that it reads by the registry alone, on real parts."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from sparklag_jobs.broker.child_process import ChildProcess, free_port
from sparklag_jobs.broker.maven import KAFKA_VERSION, Module, find_java, resolve_jars
from sparklag_schemas import PartitionLag, TopicLag, encode
from sparklag_schemas.messages.topics import key_of, partition_of
from tests.child_processes import running
from tests.commands import succeed
from tests.examples.avro_values import in_avro
from tests.examples.processes import EXAMPLES
from tests.messages import lag_event
from tests.schema_registry import SchemaRegistryServer
from tests.second_client import SecondClient
from tests.waiting import wait_for

pytestmark = pytest.mark.kafka
_JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m")
_END_S: Final = 120.0


def reader_jars() -> list[Path]:
    return resolve_jars(
        [
            Module("org.apache.kafka", "kafka-clients", KAFKA_VERSION),
            Module("org.apache.avro", "avro", "1.12.1"),
            Module("org.slf4j", "slf4j-nop", "2.0.17"),
        ]
    )


def java(source: Path, *arguments: str, jars: Iterable[Path] = ()) -> list[str]:
    path = ":".join(map(str, jars or reader_jars()))
    return [str(find_java()), *_JVM, "-cp", path, str(source), *arguments]


def test_it_reports_each_value_of_a_mixed_topic(
    second_client: SecondClient, registry: SchemaRegistryServer, topic_name: str, tmp_path: Path
) -> None:
    topic = second_client.create(topic_name)
    event = lag_event(
        status="WARN",
        total_lag=72,
        topics=[
            TopicLag(topic="orders", source=0, partitions=[lag(0, 65), lag(1, None)]),
            TopicLag(topic="bills", source=1, partitions=[lag(0, 7), lag(1, 90, 3)]),
        ],
    )
    nameless = lag_event(query=None, total_lag=None, topics=[], status="UNKNOWN")
    avro, unknown = in_avro(registry, topic, event, nameless)
    output = {
        avro: "orders WARN lag=72 worst=orders-0:65",
        encode(event): "skipped {}: not Avro: JSON from before the format was changed?",
        unknown: f"{nameless.query_id} UNKNOWN lag=null worst=null",
        b"\0\0": "skipped {}: not Avro: 2 bytes",
        b"\0\xff\xff\xff\xf0\2": "skipped {}: the registry has no schema 4294967280",
        avro[:40]: "skipped {}: does not match its schema: java.io.EOFException",
        avro + b"abc": "skipped {}: more bytes than its schema has",
        None: f"{event.query_id} is forgotten",
    }
    second_client.produce(topic, output, key=key_of(event.query_id))
    with running(reading(second_client, topic, registry.url, tmp_path)) as reader:
        wait_for(lambda: reader.has_logged("forgotten"), "all is printed")
        committed = {0: len(output)}
        wait_for(lambda: second_client.committed(topic, topic) == committed, "all is committed")
        reader.stop(_END_S)
    assert reader.exit_code == 128 + signal.SIGTERM, reader.describe_end()
    assert reader.log_path.read_text().splitlines() == [
        line.format(f"{topic}-0@{offset}") for offset, line in enumerate(output.values())
    ]


@pytest.mark.slow
def test_without_the_registry_it_ends_and_commits_nothing(
    second_client: SecondClient, registry: SchemaRegistryServer, topic_name: str, tmp_path: Path
) -> None:
    topic = second_client.create(topic_name)
    (avro,) = in_avro(registry, topic, lag_event())
    second_client.produce(topic, [b"{}", avro])
    nowhere = f"http://127.0.0.1:{free_port()}"
    with running(reading(second_client, topic, nowhere, tmp_path)) as reader:
        assert reader.wait(_END_S), reader.log_end()
    assert reader.exit_code == 1, reader.describe_end()
    assert "java.net.ConnectException" in reader.log_path.read_text()
    # A poll may have returned nothing before the first record.
    assert second_client.committed(topic, topic).get(0, 0) == 0


def reading(client: SecondClient, topic: str, registry_url: str, folder: Path) -> ChildProcess:
    """The example, in a group of the topic's name; not started yet."""
    return ChildProcess(
        "the reader",
        java(
            EXAMPLES / "java" / "LagReader.java",
            *("--bootstrap-servers", client.bootstrap_servers, "--registry", registry_url),
            *("--topic", topic, "--group", topic),
        ),
        log_path=folder / "log",
    )


def lag(partition: int, records: int | None, readable: int | None = None) -> PartitionLag:
    return PartitionLag(partition=partition, lag=records, readable_lag=readable)


@pytest.mark.slow
def test_java_puts_a_query_where_we_look_for_it() -> None:
    ids = [str(uuid.uuid4()) for _ in range(50)] + ["group:default:bücher", "x"]
    output = succeed(*java(Path(__file__).parent / "java" / "PartitionOf.java", "12", *ids))
    assert [int(line) for line in output.split()] == [partition_of(one, 12) for one in ids]
