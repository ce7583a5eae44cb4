"""The key of a team reports the team's queries, and no others: in a service on a real broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from sparklag_listener.lag.topic_source import TopicSource
from sparklag_schemas import LagEvent, MirrorSettings, Observation, Settings, StoreSettings, encode
from sparklag_schemas.messages.headers import Signatures
from sparklag_schemas.messages.topics import key_of
from sparklag_schemas.settings import SigningSettings, TeamKey
from sparklag_schemas.timestamps import epoch_ms
from tests.logged import logged
from tests.messages import lag_event, moved, query_id_in, seen
from tests.second_client import SecondClient
from tests.service.conftest import running, settings_for
from tests.service.mirror.mirroring import committed
from tests.service.test_recording import kept
from tests.waiting import DEADLINE_S, holds

pytestmark = pytest.mark.kafka
SERVICE, A, B = (f"the key of {owner}, and long" for owner in ("the service", "a", "b"))


class Writer:
    """Writes what the owner of a key signs."""

    def __init__(self, settings: Settings, client: SecondClient, key: str) -> None:
        self.settings = replace(settings, signing_key=key, signing=SigningSettings())
        self.client = client

    def write(self, message: Observation | LagEvent, *, is_tombstone: bool = False) -> None:
        is_offset = isinstance(message, Observation)
        topic = self.settings.offsets_topic if is_offset else self.settings.lag_topic
        key, value = key_of(message.query_id), None if is_tombstone else encode(message)
        headers = Signatures(self.settings).headers(topic, key, value)
        self.client.produce(topic, [value], key=key, headers=headers)


@pytest.fixture
def settings(service_settings: Settings) -> Settings:
    keys = {"a": TeamKey(key=A, queries=["a-.*"]), "b": TeamKey(key=B, queries=["b-.*"])}
    return replace(service_settings, signing_key=SERVICE, signing=SigningSettings(keys=keys))


@pytest.fixture
def writers(settings: Settings, second_client: SecondClient) -> list[Writer]:
    return [Writer(settings, second_client, key) for key in (A, B)]


async def test_no_key_of_others_moves_a_query_its_stored_offsets_or_its_group(
    settings: Settings,
    second_client: SecondClient,
    topic: str,
    writers: list[Writer],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    a, b = writers
    url, name = f"sqlite:///{tmp_path}/offsets.db", f"a-{topic}"
    store, mirror = StoreSettings(url=url), MirrorSettings(queries=[".*"])
    settings = replace(settings, store=store, mirror=mirror)
    second_client.produce(topic, [b"x"] * 9)
    query = seen(topic, {0: 5}, query=name)
    async with running(settings, second_client) as service:
        counters = service.pipeline.counters
        a.write(query)
        await service.shows(query.query_id, lambda e: e.total_lag == 4, "its own team's")
        await committed(second_client, f"spark-{name}", topic, {0: 5})
        forged = replace(moved(query, {0: 9}), batch_id=42)
        b.write(forged)
        b.write(replace(forged, query="b-mine"))
        b.write(replace(forged, query=None))
        b.write(replace(forged, query_id=query_id_in(1, 2)))
        b.write(replace(forged, query_id=name, query="b-mine"))
        refused = counters.refusals.counts
        # Each by the intake, and by the recorder.
        await holds(lambda: refused == {(settings.offsets_topic, "team"): 10}, "all are refused")
        assert "team b may not report" in str(counters.refusals.of_query(query.query_id, 0))
        a.write(replace(moved(forged, {0: 6}), batch_id=42))
        await service.shows(query.query_id, lambda e: e.total_lag == 3, "its own team's again")
        await committed(second_client, f"spark-{name}", topic, {0: 6})
        assert service.pipeline.view.query_ids() == [query.query_id]
        await holds(lambda: counters.batches_recorded == 2, "both are stored")
    assert any("the key of team b may not report query a-" in line for line in logged(caplog))
    async with running(settings, second_client) as service:
        b.write(replace(forged, query="b-mine", batch_id=43))
        refused = service.pipeline.counters.refusals.counts
        await holds(lambda: refused == {(settings.offsets_topic, "team"): 2}, "after a restart too")
    # A service that knows no query any more: what it has stored is still the team's.
    other = settings_for(str(settings.bootstrap_servers))
    topics = {"offsets_topic": other.offsets_topic, "lag_topic": other.lag_topic}
    settings = replace(settings, **topics, group_id=other.group_id)
    async with running(settings, second_client) as service:
        Writer(settings, second_client, B).write(replace(forged, query="b-mine", batch_id=43))
        counters = service.pipeline.counters
        await holds(lambda: counters.batches_refused == 1, "it is not stored")
    last, *_ = await kept(url, query.query_id)
    assert (last.batch_id, last.end_offsets()) == (42, {(0, topic): {0: 6}})


async def test_an_embedded_service_reports_the_lag_of_its_team_and_no_other(
    settings: Settings, second_client: SecondClient, writers: list[Writer]
) -> None:
    (a, b), now_ms = writers, epoch_ms()
    own = lag_event(query="a-own", measured_by="embedded", observed_at=now_ms, measured_at=now_ms)
    newer = replace(own, observed_at=now_ms + 500, measured_at=now_ms + 500, total_lag=9)
    second_client.create(settings.lag_topic, 1)
    # The last of them is newer than all that a service reads at its start, and comes after more
    # queries than there may be.
    settings = replace(settings, limits=replace(settings.limits, queries=1))
    a.write(own)
    for query_id in ("b-1", "b-2"):
        b.write(replace(own, query_id=query_id, query=query_id))
    b.write(replace(newer, query="b-mine"))
    async with running(settings, second_client) as service:
        refused = service.pipeline.counters.refusals.counts
        assert service.shown(own.query_id).total_lag == 65
        for forged in (newer, replace(newer, query="b-mine")):
            b.write(forged)
        b.write(own, is_tombstone=True)
        await holds(lambda: refused[settings.lag_topic, "team"] >= 4, "they are refused")
        a.write(newer)
        event = await service.shows(own.query_id, lambda e: e.total_lag == 9, "its own team's")
        assert event.query == "a-own"
        a.write(own, is_tombstone=True)
        await holds(lambda: not service.pipeline.view.query_ids(), "its team has forgotten it")


async def test_a_driver_with_the_key_of_its_team_reads_the_lag_of_its_queries(
    settings: Settings, second_client: SecondClient, topic: str, writers: list[Writer]
) -> None:
    a, b = writers
    second_client.produce(topic, [b"x"] * 9)
    query = seen(topic, {0: 5}, query="a-own")
    async with running(settings, second_client) as service:
        a.write(query)
        event = await service.shows(query.query_id, lambda e: e.total_lag == 4, "its lag")
    forged = replace(event, measured_at=epoch_ms() + 500, total_lag=9, query="b-mine")
    b.write(forged)
    for reader in (a.settings, settings):
        source = TopicSource(reader.resolved(reader.bootstrap_servers))
        found = await asyncio.to_thread(source.find, "a-own", DEADLINE_S)
        assert found.total_lag == 4
