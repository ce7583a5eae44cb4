"""Reading lag from `consumer-lag` itself: the newest event of each wanted query."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any

import pytest

from sparklag_listener.errors import AmbiguousQueryName, LagUnavailable, QueryNotFound
from sparklag_listener.lag.topic_source import TopicSource
from sparklag_schemas import LagEvent, MessageFormats, RegistrySettings, Settings, encode
from sparklag_schemas.messages.topics import key_of
from sparklag_schemas.timestamps import epoch_ms
from tests.local_kafka import LocalKafka
from tests.logged import logged
from tests.messages import lag_event
from tests.schema_registry import SchemaRegistryServer
from tests.second_client import SecondClient
from tests.waiting import DEADLINE_S

pytestmark = pytest.mark.kafka


class LagTopic:
    def __init__(self, client: SecondClient, name: str) -> None:
        self._client = client
        self.name = client.create(name, 3)
        settings = Settings(lag_topic=name)
        self.source = TopicSource(settings.resolved(client.bootstrap_servers))

    def write(self, query_id: str, at_ms: int | None = None, **fields: Any) -> None:
        at_ms = at_ms or epoch_ms()
        event = lag_event(query_id=query_id, observed_at=at_ms, measured_at=at_ms, **fields)
        self._client.produce(self.name, [encode(event)], key=key_of(query_id), at_ms=at_ms)

    def write_raw(self, query_id: str, value: bytes | None) -> None:
        self._client.produce(self.name, [value], key=key_of(query_id))

    def find(self, query: str) -> Any:
        return self.source.find(query, DEADLINE_S)


@pytest.fixture
def topic(second_client: SecondClient, topic_name: str) -> LagTopic:
    return LagTopic(second_client, topic_name)


def test_a_query_is_selected_by_name_by_id_and_by_the_beginning_of_that(topic: LagTopic) -> None:
    now_ms = epoch_ms()
    topic.write("abcdef-1", now_ms, total_lag=7)
    topic.write("abcdef-1", now_ms - 1_000, total_lag=9)
    topic.write("other-1", query="other")
    for name in ("orders", "abcdef-1", "abcd"):
        event = topic.find(name)
        assert (event.query_id, event.total_lag) == ("abcdef-1", 7)


def test_a_name_means_its_live_query_else_its_newest(topic: LagTopic) -> None:
    now_ms = epoch_ms()
    topic.write("old", now_ms - 2_000, status="FINISHED")
    topic.write("newer", now_ms - 1_000, status="FAILED")
    assert topic.find("orders").query_id == "newer"
    topic.write("live", now_ms - 3_000)
    assert topic.find("orders").query_id == "live"
    topic.write("live-2", now_ms)
    with pytest.raises(AmbiguousQueryName, match="2 live queries have the name") as error:
        topic.find("orders")
    assert str(error.value).endswith(": live, live-2")


def test_an_unknown_renamed_or_forgotten_query_is_an_error(topic: LagTopic) -> None:
    topic.write("a")
    topic.write("a", query="renamed")
    topic.write("b", query="forgotten")
    topic.write_raw("b", None)
    for name in ("orders", "forgotten", "never\x1bthere"):
        with pytest.raises(QueryNotFound, match="no query has the name or id"):
            topic.find(name)


def test_of_many_those_wanted_are_read_and_those_without_a_lag_left_out(topic: LagTopic) -> None:
    for number in range(5):
        topic.write(f"query-{number}")
    result = topic.source.newest(["query-1", "query-3", "new"], DEADLINE_S)
    assert {event.query_id for event in result} == {"query-1", "query-3"}
    assert topic.source.newest([], DEADLINE_S) == []


def test_it_reads_the_last_minute_before_a_log_end_that_is_a_day_old(topic: LagTopic) -> None:
    day_ago_ms = epoch_ms() - 86_400_000
    topic.write("hours-before", day_ago_ms - 7_200_000)
    for ago_s in range(300, 0, -5):
        topic.write("there", day_ago_ms - ago_s * 1_000, query="there", total_lag=ago_s)
    assert topic.find("there").total_lag == 5


def test_unreadable_or_misplaced_messages_are_skipped_and_logged_once(
    topic: LagTopic, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "sparklag")
    topic.write("a", total_lag=3)
    topic.write_raw("a", b"{no json \x1b[31m")
    topic.write_raw("a", b"{}")
    topic.write_raw("a", encode(lag_event(query_id="b")))
    assert topic.find("a").total_lag == 3
    output = logged(caplog)
    assert len(output) == 2
    assert all(line.startswith("sparklag: skipped a message at") for line in output)
    assert all(line.isprintable() for line in output)


def test_secrets_that_others_wrote_are_not_shown(topic: LagTopic) -> None:
    topic.write("a", exception="IOException: fs.s3a.secret.key=hunter2Planted: refused")
    assert "hunter2Planted" not in repr(topic.find("a"))


def test_events_in_avro_are_read_beside_those_in_json(
    topic: LagTopic, second_client: SecondClient, registry: SchemaRegistryServer
) -> None:
    settings = Settings(
        lag_topic=topic.name,
        format="avro",
        registry=RegistrySettings(url=registry.url, timeout_s=20.0),
    ).resolved(second_client.bootstrap_servers)
    writer = MessageFormats(settings).writer(LagEvent, topic.name)
    event = lag_event(query_id="in-avro", query="avro", total_lag=11)
    topic.write("in-json", total_lag=7)
    topic.write_raw("in-avro", asyncio.run(writer.encode(event)))
    source = TopicSource(settings)
    assert source.find("avro", DEADLINE_S).total_lag == 11
    assert source.find("orders", DEADLINE_S).total_lag == 7


def test_a_missing_topic_is_not_created(kafka: LocalKafka, second_client: SecondClient) -> None:
    name = f"missing-{uuid.uuid4().hex[:8]}"
    source = TopicSource(Settings(lag_topic=name).resolved(kafka.bootstrap_servers))
    with pytest.raises(LagUnavailable, match=f"topic {name} on .* does not exist"):
        source.find("orders", DEADLINE_S)
    assert name not in second_client.topics()


@pytest.mark.slow
def test_with_kafka_frozen_it_is_not_waited_for() -> None:
    with LocalKafka() as own_kafka:
        SecondClient(own_kafka.bootstrap_servers).create("consumer-lag")
        source = TopicSource(Settings().resolved(own_kafka.bootstrap_servers))
        own_kafka.freeze()
        with pytest.raises(LagUnavailable, match=r"did not answer within 1\.5 s"):
            source.newest(["a"], 1.5)
        own_kafka.thaw()
