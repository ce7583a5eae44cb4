"""`starting_offsets` and `ending_offsets` from a real store, against a real broker."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from sparklag_kafka.errors import KafkaUnavailable
from sparklag_listener import ending_offsets, starting_offsets
from sparklag_offsets.errors import (
    PositionDeleted,
    RestoreError,
    SourceNotNamed,
    TopicChanged,
)
from sparklag_offsets.store import open_store
from sparklag_offsets.store.writer import StoreWriter
from sparklag_schemas import Observation, Offsets, Settings
from sparklag_schemas.timestamps import epoch_ms
from tests.databases.server import HOST
from tests.local_kafka import LocalKafka
from tests.logged import logged
from tests.offsets.checkpoints.folders import SAMPLES
from tests.offsets.store.batches import output, source
from tests.second_client import SecondClient

HOUR_MS = 3_600_000
NOWHERE = f"{HOST}:1"


class Keeper:
    def __init__(self, folder: Path, bootstrap_servers: str) -> None:
        self.url = f"sqlite:///{folder}/offsets.db"
        self.bootstrap_servers = bootstrap_servers

    def keep(self, *sources: Offsets, **fields: Any) -> None:
        positions = [
            source(offsets, source=number, bootstrap_servers=self.bootstrap_servers)
            for number, offsets in enumerate(sources)
        ]
        asyncio.run(self._write(output(fields.pop("batch_id", 0), *positions, **fields)))

    async def _write(self, observation: Observation) -> None:
        store = open_store(self.url, create=True)
        try:
            await StoreWriter(store, Settings()).write([observation])
        finally:
            await store.aclose()


@pytest.fixture
def away(tmp_path: Path) -> Keeper:
    """The position of a query whose brokers do not answer."""
    keeper = Keeper(tmp_path, NOWHERE)
    keeper.keep({"orders": {0: 5}}, {"users": {1: 6, 0: 7}})
    return keeper


def started(keeper: Keeper, **arguments: Any) -> Any:
    return json.loads(starting_offsets("orders", store=keeper.url, **arguments))


def ended(keeper: Keeper, **arguments: Any) -> Any:
    return json.loads(ending_offsets("orders", store=keeper.url, **arguments))


def line(raised: pytest.ExceptionInfo[Exception]) -> str:
    text = str(raised.value)
    assert "\n" not in text
    return text


@pytest.mark.kafka
class TestOnKafka:
    @pytest.fixture
    def keeper(self, kafka: LocalKafka, tmp_path: Path) -> Keeper:
        return Keeper(tmp_path, kafka.bootstrap_servers)

    @pytest.fixture
    def topic(self, topic_name: str, second_client: SecondClient) -> str:
        second_client.create(topic_name)
        second_client.produce(topic_name, [b"x"] * 10)
        return topic_name

    def test_a_query_begins_where_it_was_and_added_partitions_at_earliest(
        self, keeper: Keeper, topic: str, second_client: SecondClient
    ) -> None:
        keeper.keep({topic: {0: 5}})
        second_client.add_partitions(topic, 3)
        # A producer that has not written to the topic before sees all of it.
        SecondClient(keeper.bootstrap_servers).produce(topic, [b"x"] * 4, partition=2)
        assert started(keeper) == {topic: {"0": 5, "1": -2, "2": -2}}
        assert ended(keeper) == {topic: {"0": 5, "1": 0, "2": 0}}

    def test_records_that_were_deleted_are_refused_or_lost_with_a_warning(
        self,
        keeper: Keeper,
        topic: str,
        second_client: SecondClient,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        keeper.keep({topic: {0: 5}})
        second_client.delete_records(topic, {0: 8})
        with pytest.raises(PositionDeleted) as raised:
            started(keeper)
        assert f"{topic}[0] 3 records; on_deleted='earliest'" in line(raised)
        assert logged(caplog) == []
        assert started(keeper, on_deleted="earliest") == {topic: {"0": -2}}
        assert ended(keeper, on_deleted="earliest") == {topic: {"0": 8}}
        warned = logged(caplog, logging.WARNING)
        assert len(warned) == 2
        assert f"{topic}[0] 3 records; they are lost" in warned[0]
        assert started(keeper, on_deleted="unchecked") == {topic: {"0": 5}}

    @pytest.mark.parametrize("records", [2, 20], ids=["shorter", "longer"])
    def test_a_topic_that_was_created_anew_is_refused(
        self, keeper: Keeper, topic: str, second_client: SecondClient, records: int
    ) -> None:
        keeper.keep({topic: {0: 5}})
        second_client.delete(topic)
        second_client.create(topic)
        second_client.produce(topic, [b"x"] * records)
        for on_deleted in ("error", "earliest"):
            with pytest.raises(TopicChanged) as raised:
                started(keeper, on_deleted=on_deleted)
            assert f"topic {topic} was recreated since: the recorded offsets are" in line(raised)

    def test_a_topic_that_is_gone_is_reported(
        self, keeper: Keeper, topic: str, second_client: SecondClient
    ) -> None:
        keeper.keep({topic: {0: 5}})
        second_client.delete(topic)
        with pytest.raises(TopicChanged, match="there is no such topic") as raised:
            started(keeper)
        assert topic in line(raised)
        # Asking for it has not made it.
        assert topic not in second_client.topics()

    def test_topics_and_source_select_the_source(
        self, keeper: Keeper, topic: str, second_client: SecondClient
    ) -> None:
        new = second_client.create(f"{topic}-new", 2)
        keeper.keep({topic: {0: 5}}, {new: {0: 0, 1: 0}})
        with pytest.raises(SourceNotNamed) as raised:
            started(keeper)
        assert f"(0: {topic}; 1: {new})" in line(raised)
        assert started(keeper, source=0) == {topic: {"0": 5}}
        assert started(keeper, source=1) == {new: {"0": 0, "1": 0}}
        assert started(keeper, topics=[topic]) == {topic: {"0": 5}}
        assert started(keeper, source=0, topics=[topic, new]) == {
            topic: {"0": 5},
            new: {"0": -2, "1": -2},
        }

    async def test_it_works_in_a_loop(self, kafka: LocalKafka, tmp_path: Path, topic: str) -> None:
        keeper = Keeper(tmp_path, kafka.bootstrap_servers)
        await asyncio.to_thread(keeper.keep, {topic: {0: 5}})
        assert started(keeper) == {topic: {"0": 5}}

    def test_the_topics_may_be_elsewhere_than_where_they_were_read(
        self, kafka: LocalKafka, tmp_path: Path, topic: str
    ) -> None:
        keeper = Keeper(tmp_path, NOWHERE)
        keeper.keep({topic: {0: 5}})
        assert started(keeper, bootstrap_servers=kafka.bootstrap_servers) == {topic: {"0": 5}}

    @pytest.fixture
    def an(self, second_client: SecondClient) -> Iterator[str]:
        second_client.create("an", 2)
        for partition in range(2):
            second_client.produce("an", [b"x"] * 30, partition=partition)
        yield "an"
        second_client.delete("an")

    def test_a_checkpoint_replaces_a_store(self, kafka: LocalKafka, an: str) -> None:
        at: dict[str, Any] = {
            "checkpoint": str(SAMPLES / "available_now"),
            "bootstrap_servers": kafka.bootstrap_servers,
        }
        assert json.loads(starting_offsets(**at)) == {an: {"0": 25, "1": 25}}
        assert json.loads(ending_offsets(**at)) == {an: {"0": 25, "1": 25}}


@pytest.mark.parametrize(
    "at",
    [
        datetime.fromtimestamp(epoch_ms() / 1000 - 7_200),
        datetime.fromtimestamp(epoch_ms() / 1000 - 7_200, timezone.utc),
        datetime.fromtimestamp(epoch_ms() / 1000 - 7_200, timezone(timedelta(hours=5))),
        datetime.fromtimestamp(epoch_ms() / 1000 - 7_200, timezone.utc).isoformat(),
        epoch_ms() - 2 * HOUR_MS,
        str(epoch_ms() - 2 * HOUR_MS),
        timedelta(hours=2),
        timedelta(hours=-2),
        "-2h",
        "2h",
    ],
    ids=lambda at: type(at).__name__,
)
def test_a_time_is_accepted_in_every_form(tmp_path: Path, at: Any) -> None:
    keeper = Keeper(tmp_path, NOWHERE)
    for batch_id, hours in enumerate((4, 3, 1)):
        keeper.keep(
            {"t": {0: batch_id}},
            batch_id=batch_id,
            processed_at=epoch_ms() - hours * HOUR_MS,
            observed_at=epoch_ms() - hours * HOUR_MS + 5,
        )
    if isinstance(at, datetime) and at.tzinfo is None:
        # Without a zone it is UTC, not the time here.
        at = at.astimezone(timezone.utc).replace(tzinfo=None)
    assert started(keeper, at=at, on_deleted="unchecked") == {"t": {"0": 1}}
    assert started(keeper, on_deleted="unchecked") == {"t": {"0": 2}}


def test_unchecked_sends_no_request_to_kafka(away: Keeper) -> None:
    assert started(away, source=1, on_deleted="unchecked") == {"users": {"0": 7, "1": 6}}


def test_brokers_that_are_away_are_reported(away: Keeper) -> None:
    with pytest.raises(KafkaUnavailable, match=f"Kafka at {NOWHERE}: ") as raised:
        started(away, source=0)
    line(raised)


def test_an_unchecked_checkpoint_is_read_without_kafka() -> None:
    result = starting_offsets(checkpoint=str(SAMPLES / "single_kafka"), on_deleted="unchecked")
    assert json.loads(result) == {"s1": {"0": 10, "1": 10}}


def test_a_checkpoint_without_brokers_is_read_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    result = starting_offsets(checkpoint=str(SAMPLES / "single_kafka"))
    assert json.loads(result) == {"s1": {"0": 10, "1": 10}}
    assert "its offsets are not checked against Kafka: set bootstrap_servers" in caplog.text
    with pytest.raises(RestoreError, match="set bootstrap_servers") as raised:
        starting_offsets(checkpoint=str(SAMPLES / "single_kafka"), on_deleted="earliest")
    line(raised)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "starting_offsets() takes a query, or checkpoint=, and not both"),
        ({"query": "orders", "checkpoint": "/c"}, "and not both"),
        ({"checkpoint": "/c", "at": "-2h"}, "checkpoint= excludes store= and at="),
        ({"checkpoint": "/c", "store": "sqlite:///x.db"}, "checkpoint= excludes store="),
        ({"query": "orders", "on_deleted": "latest"}, "takes error, earliest or unchecked"),
        ({"query": "orders", "at": "yesterday"}, "at='yesterday': 'yesterday' is neither epoch"),
        ({"query": "orders", "at": "-2 weeks"}, "at='-2 weeks'"),
        ({"query": "orders", "at": 1.5}, "at=1.5"),
        ({"query": "orders"}, "needs store=, or setting store.url"),
    ],
)
def test_a_wrong_argument_is_reported_in_one_line(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(RestoreError) as raised:
        starting_offsets(**arguments)
    assert text in line(raised)


@pytest.mark.parametrize("topics", ["orders", [], ""])
def test_topics_are_a_list_of_names(away: Keeper, topics: Any) -> None:
    with pytest.raises(RestoreError, match="topics takes a list of names") as raised:
        started(away, topics=topics, on_deleted="unchecked")
    line(raised)


def test_the_url_may_be_a_setting(away: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKLAG_STORE__URL", away.url)
    result = starting_offsets("orders", source=0, on_deleted="unchecked")
    assert json.loads(result) == {"orders": {"0": 5}}
