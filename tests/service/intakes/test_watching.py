"""A service that looks by itself: checkpoints and consumer groups, in the pipeline and shared."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from sparklag_schemas import CheckpointSettings, GroupSettings, LagEvent, Settings
from sparklag_schemas.timestamps import epoch_ms
from tests.local_kafka import LocalKafka
from tests.messages import observation, position
from tests.offsets.checkpoints.folders import Checkpoint
from tests.second_client import SecondClient
from tests.service.conftest import running, settings_for
from tests.waiting import holds

pytestmark = pytest.mark.kafka


@pytest.fixture
def orders(second_client: SecondClient, topic: str) -> str:
    second_client.produce(topic, [b"order"] * 100)
    return topic


@pytest.fixture
def watching(kafka: LocalKafka, tmp_path: Path) -> Settings:
    return settings_for(
        kafka.bootstrap_servers,
        heartbeat_s=1.0,
        checkpoints=CheckpointSettings(
            locations=[f"{tmp_path}/*"], interval_s=0.2, find_interval_s=0.2
        ),
    )


def at(event: LagEvent) -> tuple[int | None, int | None, str]:
    return event.batch_id, event.total_lag, event.origin


async def test_lag_by_a_checkpoint_goes_on_growing_and_moves_with_it(
    watching: Settings, second_client: SecondClient, orders: str, tmp_path: Path
) -> None:
    checkpoint = Checkpoint(tmp_path / "totals")
    checkpoint.run(3, {orders: {0: 40}})
    query = checkpoint.query_id
    async with running(watching, second_client) as service:
        event = await service.shows(query, lambda e: at(e) == (3, 60, "checkpoint"), "60 behind")
        assert (event.query, event.run_id, event.status) == ("totals", None, "OK")
        second_client.produce(orders, [b"order"] * 11)
        await service.shows(query, lambda e: e.total_lag == 71, "it grows")
        checkpoint.run(4, {orders: {0: 90}})
        await service.shows(query, lambda e: at(e) == (4, 21, "checkpoint"), "it moves")


async def test_a_driver_and_its_checkpoint_are_one_query(
    watching: Settings, second_client: SecondClient, orders: str, tmp_path: Path
) -> None:
    checkpoint = Checkpoint(tmp_path / "totals")
    checkpoint.run(3, {orders: {0: 40}})
    query = checkpoint.query_id

    def spoken(batch_id: int, offset: int) -> None:
        service.observe(
            observation(
                query_id=query,
                batch_id=batch_id,
                observed_at=epoch_ms(),
                processed_at=epoch_ms(),
                sources=[position({orders: {0: offset}}, topics=[orders])],
            )
        )

    async with running(watching, second_client) as service:
        await service.shows(query, lambda e: at(e) == (3, 60, "checkpoint"), "by its checkpoint")
        spoken(4, 50)
        event = await service.shows(query, lambda e: at(e) == (4, 50, "listener"), "by its driver")
        assert event.query == "orders"
        # The driver is killed: its checkpoint has what it did not report any more.
        checkpoint.run(5, {orders: {0: 70}})
        await service.shows(query, lambda e: at(e) == (5, 30, "checkpoint"), "by its checkpoint")
        await service.shows(query, lambda e: e.status == "STOP", "its silence is noticed")


async def test_a_checkpoint_that_cannot_be_read_any_more_is_reported_and_named(
    watching: Settings, second_client: SecondClient, orders: str, tmp_path: Path
) -> None:
    checkpoint = Checkpoint(tmp_path / "totals")
    checkpoint.run(3, {orders: {0: 40}})
    async with running(watching, second_client) as service:
        await service.shows(checkpoint.query_id, lambda e: e.total_lag == 60, "60 behind")
        (checkpoint.folder / "metadata").rename(tmp_path / "kept")
        for file in (checkpoint.folder / "commits").iterdir():
            file.unlink()
        await holds(
            lambda: any(str(checkpoint.folder) in line for line in service.state.degraded()),
            "the location is named",
        )
        event = await service.shows(
            checkpoint.query_id, lambda e: e.status == "UNKNOWN", "its status is UNKNOWN"
        )
        assert event.total_lag == 60
        assert not service.state.not_ready()


async def test_a_group_that_is_deleted_leaves_a_tombstone(
    kafka: LocalKafka, second_client: SecondClient, orders: str
) -> None:
    group = f"billing-{uuid.uuid4().hex[:6]}"
    query = f"group:default:{group}"
    second_client.commit(group, {orders: {0: 30}})
    settings = settings_for(
        kafka.bootstrap_servers,
        groups=GroupSettings(allow=[group], interval_s=0.2, find_interval_s=0.5),
    )
    async with running(settings, second_client) as service:
        await service.shows(query, lambda e: e.total_lag == 70, "70 behind")
        second_client.delete_group(group)
        await holds(lambda: service.pipeline.view.get(query) is None, "it is forgotten")
        *events, tombstone = service.published(query)
        assert tombstone is None
        last = events[-1]
        assert last is not None
        assert (last.status, last.cause) == ("FINISHED", "terminated")
