"""A service and drivers on a real broker that takes only what a managed Kafka takes."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from sparklag_jobs.broker.maven import kafka_jars
from sparklag_kafka.clients.producer import AcknowledgedProducer
from sparklag_kafka.errors import KAFKA_FAILURES, error_name
from sparklag_kafka.protocol.requests import lacking
from sparklag_schemas import KafkaSettings, ResolvedSettings, Settings, encode
from sparklag_schemas.messages.topics import key_of
from tests.end_to_end import Topics, answer, reports, service
from tests.kafka.service_proxy import INIT_PRODUCER_ID, TABLES, ServiceProxy, Table, table_of
from tests.local_kafka import LocalKafka
from tests.messages import seen
from tests.offsets.checkpoints.folders import Checkpoint
from tests.second_client import SecondClient
from tests.waiting import wait_for

pytestmark = pytest.mark.kafka

_UNUSABLE = "msk-serverless"
_IN_MAKE_TEST = ("event-hubs", "event-hubs-2019")
_SERVICES = [
    pytest.param(table.stem, marks=() if table.stem in _IN_MAKE_TEST else pytest.mark.slow)
    for table in sorted(TABLES.glob("*.json"))
    if table.stem != _UNUSABLE
]
_OLD = table_of("msk")


@pytest.fixture(scope="module")
def proxy() -> Iterator[ServiceProxy]:
    with (
        closing(ServiceProxy(_OLD)) as proxy,
        LocalKafka(advertised=proxy.bootstrap_servers) as kafka,
    ):
        proxy.upstream = kafka.ports.client
        proxy.client = SecondClient(kafka.internal_servers)
        yield proxy


@pytest.mark.parametrize("name", _SERVICES)
def test_all_works_on_a_service_or_check_says_what_is_lost(
    name: str, proxy: ServiceProxy, tmp_path: Path
) -> None:
    proxy.table, topics = table_of(name), Topics(proxy.client)
    topics.order(70)
    ends = topics.ends()
    half, third = ({number: end // part for number, end in ends.items()} for part in (2, 3))
    Checkpoint(tmp_path / "checkpoints" / "watched").run(0, {topics.orders: half})
    group = f"billing-{name}"
    proxy.client.commit(group, {topics.orders: third})
    topics.environment |= {
        "SPARKLAG_BOOTSTRAP_SERVERS": proxy.bootstrap_servers,
        "SPARKLAG_CHECKPOINTS__LOCATIONS": str(tmp_path / "checkpoints" / "*"),
        "SPARKLAG_GROUPS__ALLOW": group,
        "SPARKLAG_STORE__URL": f"sqlite:///{tmp_path / 'offsets.db'}",
    }
    log = tmp_path / "service.log"
    with service(topics, proxy, log) as url:
        observed = seen(topics.orders, third, query="observed")
        settings = _settings(proxy)
        offsets_topic = topics.environment["SPARKLAG_OFFSETS_TOPIC"]
        asyncio.run(_send(settings, offsets_topic, [(observed.query_id, encode(observed))]))
        for query, read in (("watched", half), (group, third), ("observed", third)):
            lag = sum(ends.values()) - sum(read.values())
            is_measured = lambda q=query, lag=lag: reports(url, q, total_lag=lag)  # noqa: E731
            wait_for(is_measured, f"{query} is measured")
        restored = {topics.orders: {str(number): offset for number, offset in third.items()}}
        wait_for(lambda: answer(f"{url}/offsets/observed") == restored, "it can be restored")
        results = _check(topics, url)
    assert topics.newest_event().topics[0].topic == topics.orders
    shown = "\n".join(result["text"] for result in results)
    assert not [result for result in results if result["state"] == "bad"], shown
    assert all(request.lost in shown for request in lacking(proxy.table.apis))
    refused = error_name(proxy.table.compression)
    assert shown.count(refused) == bool(proxy.table.compression)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert sum(refused in line["event"] for line in lines) == bool(proxy.table.compression)
    assert not [line for line in lines if line["level"] == "error"]
    assert "UnknownError" not in shown + log.read_text()


def test_a_service_whose_requests_are_all_newer_is_one_clear_line(proxy: ServiceProxy) -> None:
    proxy.table, topics = table_of(_UNUSABLE), Topics(proxy.client)
    topics.environment["SPARKLAG_BOOTSTRAP_SERVERS"] = proxy.bootstrap_servers
    (kafka,) = [result for result in _check(topics) if result["check"] == "kafka"]
    assert kafka["state"] == "bad"
    assert "sparklag cannot work with this broker: it takes no ListOffsets 2 to 3," in kafka["text"]
    assert "another cluster" in kafka["remedy"]


@pytest.mark.parametrize("code", [43, 76])
async def test_refused_compression_loses_no_message_and_is_one_log_line(
    code: int, proxy: ServiceProxy, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.table = _OLD._replace(compression=code)
    proxy.client.create(topic_name, 8)
    sent = [(f"query-{number}", b"x" * 1_000) for number in range(200)]
    await _send(_settings(proxy, "lz4"), topic_name, sent)
    keys = {message.key() for message in proxy.client.read_all(topic_name)}
    assert keys == {key_of(query) for query, _ in sent}
    (line,) = _warnings(caplog)
    assert f"{error_name(code)} to batches with kafka.compression = lz4" in line


@pytest.mark.parametrize("refusal", ["lacks", "forbids"])
async def test_without_a_producer_id_the_producer_is_not_idempotent(
    refusal: str, proxy: ServiceProxy, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    apis = dict(_OLD.apis)
    if refusal == "lacks":
        del apis[INIT_PRODUCER_ID]
    proxy.table = Table(apis, producer_ids=0 if refusal == "lacks" else 31)
    proxy.client.create(topic_name)
    await _send(_settings(proxy), topic_name, [("orders", b"1"), ("orders", b"2")])
    assert [message.value() for message in proxy.client.read_all(topic_name)] == [b"1", b"2"]
    (line,) = _warnings(caplog)
    assert re.search("without idempotence.*(CLUSTER_AUTHORIZATION_FAILED|InitProducerId 0)", line)


@pytest.mark.parametrize("table", [_OLD._replace(producer_ids=15), table_of(_UNUSABLE)])
async def test_where_no_producer_can_start_a_message_fails_by_its_deadline(
    table: Table, proxy: ServiceProxy, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.table = table
    with pytest.raises(KAFKA_FAILURES):
        await _send(_settings(proxy, timeout_s=1), topic_name, [("orders", b"1")])
    gc.collect()
    assert "Unclosed" not in caplog.text


@pytest.mark.parametrize(("codec", "number"), [("none", 0), ("gzip", 1), ("lz4", 3), ("zstd", 4)])
async def test_records_are_compressed_as_it_is_set(
    codec: Any, number: int, proxy: ServiceProxy, topic_name: str
) -> None:
    proxy.table, proxy.codecs = _OLD, []
    proxy.client.create(topic_name)
    await _send(_settings(proxy, codec), topic_name, [("orders", b"x" * 1_000)])
    assert proxy.codecs == [number]
    (message,) = proxy.client.read_all(topic_name)
    assert message.value() == b"x" * 1_000


def test_errors_have_kafkas_names() -> None:
    (jar,) = [j for j in kafka_jars() if j.name.startswith("kafka-clients-")]
    known = ZipFile(jar).read("org/apache/kafka/common/protocol/Errors.class")
    names = {code: error_name(code) for code in range(-1, 134) if code != 0}
    assert not [n for n in names.values() if b"\0" + bytes([len(n)]) + n.encode() not in known]
    assert (names[76], names[100]) == ("UNSUPPORTED_COMPRESSION_TYPE", "UNKNOWN_TOPIC_ID")


def _settings(proxy: ServiceProxy, codec: Any = "zstd", timeout_s: float = 10) -> ResolvedSettings:
    kafka = KafkaSettings(compression=codec, request_timeout_s=timeout_s)
    return Settings(bootstrap_servers=proxy.bootstrap_servers, kafka=kafka).resolved()


async def _send(settings: ResolvedSettings, topic: str, messages: list[tuple[str, bytes]]) -> None:
    producer = AcknowledgedProducer(settings)
    try:
        await asyncio.gather(
            *(producer.send(topic, key=key_of(q), value=v, headers=[]) for q, v in messages)
        )
    finally:
        await producer.aclose()


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "sparklag.kafka"]


def _check(topics: Topics, url: str = "http://127.0.0.1:1") -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "sparklag_service", "check", "--json", "--url", url]
    ended = subprocess.run(command, env=topics.environment, stdout=subprocess.PIPE, check=False)
    results: list[dict[str, Any]] = json.loads(ended.stdout)
    return results
