"""One query's trouble is that query's, and one task's that task's: whatever is raised, wherever."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from msgspec.structs import replace

from sparklag_schemas import LagEvent, Observation, Settings, StoreSettings
from sparklag_schemas.messages.topics import key_of
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service import supervision
from sparklag_service.instance_state import InstanceState
from sparklag_service.pipeline import Pipeline
from tests.fuzz.extremes import extremes_of
from tests.messages import QUERY_ID, position, seen
from tests.second_client import SecondClient
from tests.service.conftest import RunningService, running, starting
from tests.waiting import eventually, holds

pytestmark = pytest.mark.kafka

_STAGES: dict[str, tuple[str, str, Callable[..., str]]] = {
    "tracking": ("tracking._tracker", "observe", lambda _, observation, *__: observation.query_id),
    "enrichment": ("enricher", "_request", lambda state, *_: state.query_id),
    "evaluation": ("evaluation._evaluator", "evaluate", lambda state, *_, **__: state.query_id),
    "publishing": (
        "publishing",
        "publish",
        lambda event, *_: event.query_id if event.topics else "",
    ),
}


class Broken:
    """Makes one method of a part raise for one query, until it is mended."""

    def __init__(self, pipeline: Pipeline, stage: str, query_id: str) -> None:
        part, method, query_of = _STAGES[stage]
        self._part, self._method = attrgetter(part)(pipeline), method
        self._works = getattr(self._part, method)

        def breaks(*arguments: Any, **named: Any) -> Any:
            if query_of(*arguments, **named) == query_id:
                raise KeyError("injected")
            return self._works(*arguments, **named)

        object.__setattr__(self._part, method, breaks)

    def mend(self) -> None:
        object.__setattr__(self._part, self._method, self._works)


@pytest.mark.parametrize("stage", _STAGES)
async def test_a_query_that_fails_at_a_stage_is_unknown_and_the_others_go_on(
    stage: str, service: RunningService, second_client: SecondClient, topic: str
) -> None:
    well, ill = seen(topic, {0: 0}), seen(topic, {0: 0})
    broken = Broken(service.pipeline, stage, ill.query_id)
    service.observe(ill, well)

    def is_reported(event: LagEvent) -> bool:
        return event.status == "UNKNOWN" and f"failed at its {stage}" in (event.reason or "")

    await service.shows(ill.query_id, is_reported, "it is said what failed")
    second_client.produce(topic, [b"x"] * 7)
    event = await service.shows(well.query_id, lambda e: e.total_lag == 7, "the other one's lag")
    assert event.status == "OK"
    assert service.pipeline.tracked.failures[stage]
    broken.mend()
    service.observe(seen(topic, {0: 3}, query_id=ill.query_id, run_id=ill.run_id))
    event = await service.shows(ill.query_id, lambda e: e.total_lag == 4, "its lag, once mended")
    assert event.status != "UNKNOWN"
    await holds(lambda: not service.state.unpublished, "nothing waits for ever")


_TASKS = {
    "live stream": "live.run",
    "view": "view_reader.run",
    "cluster default": "enricher.run",
    "topics": "topics.recreate",
    "publisher": "publishing.run",
    "tracker": "tracking.run",
    "refresh": "ownership.refresh",
    "evaluator": "evaluation.run",
    "watchers": "_watch",
    "history refill": "refill.run",
    "intake": "intake.run",
}


@pytest.mark.parametrize("task", _TASKS)
async def test_a_task_that_dies_is_started_again(
    task: str,
    service_settings: Settings,
    second_client: SecondClient,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervision, "_FIRST_PAUSE_S", 0.1)
    keep = supervision.Supervisor.keep

    async def keep_one_that_dies(
        self: supervision.Supervisor, name: str, run: Callable[[], Any]
    ) -> None:
        async def dies_once() -> None:
            if name == task and not self.restarts[task]:
                raise ZeroDivisionError("injected")
            await run()

        await keep(self, name, dies_once)

    monkeypatch.setattr(supervision.Supervisor, "keep", keep_one_that_dies)
    second_client.produce(topic, [b"x"] * 9)
    query = seen(topic, {0: 4})
    async with starting(service_settings, second_client) as service:
        pipeline = service.pipeline
        await holds(lambda: pipeline.supervisor.restarts[task] == 1, "it died")
        assert InstanceState(pipeline).not_ready()[f"task {task}"] == "ZeroDivisionError: injected"
        monkeypatch.setattr(supervision, "_STEADY_S", -1.0)
        await service.is_ready()
        await service.measures(query, 5)
    assert +pipeline.supervisor.restarts == {task: 1}


@pytest.mark.blocks_loop("the test compresses 200 MB")
async def test_what_the_topics_hold_keeps_no_instance_from_starting(
    service_settings: Settings, second_client: SecondClient, topic_name: str
) -> None:
    second_client.create(topic_name, 1)
    async with running(service_settings, second_client):
        """Both topics are there."""
    for topic in (service_settings.offsets_topic, service_settings.lag_topic):
        for junk in (b"", b"\0", b"{", b"null", b"[" * 100_000, b"\xff" * 1_000):
            second_client.produce(topic, [junk], key=b"\xff\xfe")
        for partition in range(service_settings.topic_partitions):
            write_and_abort(second_client, topic, partition, b" " * 200_000_000)
    second_client.produce(service_settings.offsets_topic, [b"", b"[]"])
    query = seen(topic_name, {0: 0})
    async with running(service_settings, second_client) as service:
        await service.measures(query, 0)


@pytest.mark.blocks_loop("the test encodes messages of every extreme")
async def test_no_number_ends_an_instance_or_changes_another_query(
    service_settings: Settings, second_client: SecondClient, topic_name: str, tmp_path: Path
) -> None:
    store = StoreSettings(url=f"sqlite:///{tmp_path}/offsets.db")
    settings = replace(service_settings, store=store)
    second_client.create(topic_name, 1)
    second_client.produce(topic_name, [b"x"] * 9)
    query = seen(topic_name, {0: 4})
    async with running(settings, second_client) as service:
        await service.measures(query, 5)
        for topic, message in (
            (settings.offsets_topic, Observation),
            (settings.lag_topic, LagEvent),
        ):
            for extremes in extremes_of(message).values():
                other = str(uuid.uuid4())
                changed = [one.replace(QUERY_ID.encode(), other.encode()) for one in extremes]
                second_client.produce(topic, changed, key=key_of(other))
        moved = replace(query, observed_at=epoch_ms(), sources=[position({topic_name: {0: 7}})])
        service.observe(moved)
        await service.shows(query.query_id, lambda e: e.total_lag == 2, "lag 2")
        refusals = service.pipeline.counters.refusals

        async def of_both() -> bool:
            topics = {settings.offsets_topic, settings.lag_topic}
            return {topic for topic, _ in refusals.counts} == topics

        await eventually(of_both, "messages of both topics are refused")
        assert not +service.pipeline.supervisor.restarts
    async with running(settings, second_client) as service:
        await service.shows(query.query_id, lambda e: e.total_lag == 2, "lag 2")
        second_client.produce(topic_name, [b"x"])
        await service.shows(query.query_id, lambda e: e.total_lag == 3, "lag 3")
        assert not +service.pipeline.supervisor.restarts
        lags = [event.total_lag for event in service.published(query.query_id) if event is not None]
    assert set(lags) <= {5, 2, 3}


def write_and_abort(client: SecondClient, topic: str, partition: int, value: bytes) -> None:
    """What is written last in the log is no record, and takes an offset."""
    producer = Producer(
        {
            "bootstrap.servers": client.bootstrap_servers,
            "transactional.id": f"{topic}-{partition}",
            "compression.type": "zstd",
            "message.max.bytes": 1_000_000_000,
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0
    producer.abort_transaction(60)
