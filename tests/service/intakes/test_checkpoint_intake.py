"""The checkpoint intake: the checkpoints that it watches, and its observations."""

from __future__ import annotations

import asyncio
import copy
import os
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sparklag_offsets.checkpoints.files import LocalFiles
from sparklag_schemas import CheckpointSettings, ClusterSettings, Observation, Settings
from sparklag_service.counters import Counters
from sparklag_service.intakes import SourceContext, checkpoints, delivery_queue
from sparklag_service.intakes.checkpoints import CheckpointIntake
from sparklag_service.tracking.query_state import QueryState
from tests.background_task import background
from tests.offsets.checkpoints import folders
from tests.service.states import source, state
from tests.waiting import holds

INTERVAL_S = 0.05


class Checkpoint(folders.Checkpoint):
    def begins(self, batch_id: int, offset: int, partition: int = 0) -> None:
        self.plan(batch_id, {"orders": {partition: offset}})

    def completes(self, batch_id: int, offset: int) -> Checkpoint:
        self.run(batch_id, {"orders": {0: offset}})
        return self


class Watching:
    def __init__(self, **checkpoints: Any) -> None:
        clusters = checkpoints.pop("clusters", {})
        heartbeat_s = checkpoints.pop("heartbeat_s", 60.0)
        self._observed: list[Observation] = []
        self.others: set[str] = set()
        """Queries that another instance owns."""
        self.queries: dict[str, QueryState] = {}
        settings = Settings(
            heartbeat_s=heartbeat_s,
            clusters=clusters,
            checkpoints=CheckpointSettings(
                **{"interval_s": INTERVAL_S, "find_interval_s": INTERVAL_S, **checkpoints}
            ),
        )
        self._queue = delivery_queue(1_000, Counters())
        self.intake = CheckpointIntake(
            SourceContext(
                settings.resolved("broker:9092"),
                self._queue,
                lambda query_id: query_id not in self.others,
                self.queries,
            )
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Watching]:
        async with background(self.intake.run()):
            yield self

    @property
    def observed(self) -> list[Observation]:
        while not self._queue.empty():
            delivery = self._queue.get_nowait()
            delivery.done()
            self._observed.append(delivery.observation)
        return self._observed

    def of(self, checkpoint: Checkpoint) -> list[Observation]:
        return [one for one in self.observed if one.query_id == checkpoint.query_id]

    async def reports(self, checkpoint: Checkpoint, batch_id: int, offset: int) -> Observation:
        """Wait until this position is the last one observed."""

        def positions() -> list[tuple[int | None, object]]:
            return [(one.batch_id, one.sources[0].processed) for one in self.of(checkpoint)]

        expected = (batch_id, {"orders": {0: offset}})
        await holds(lambda: positions()[-1:] == [expected], f"batch {batch_id} at {offset}")
        return self.of(checkpoint)[-1]

    async def fails(self, *words: str) -> str:
        def result() -> list[str]:
            lines = self.intake.failing.values()
            return [line for line in lines if all(word in line for word in words)]

        await holds(result, f"a failure with {words}")
        assert "\n" not in result()[0]
        return result()[0]

    async def is_well(self) -> None:
        await holds(lambda: not self.intake.failing, "nothing fails")

    async def looked(self, rounds: int = 4) -> None:
        await asyncio.sleep(rounds * INTERVAL_S)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    return folder


@pytest.fixture
def orders(place: Path) -> Checkpoint:
    """Its batch 0 has ended at 10."""
    return Checkpoint(place / "orders").completes(0, 10)


async def test_each_query_of_a_pattern_is_reported_where_it_is(place: Path) -> None:
    orders = Checkpoint(place / "orders").completes(4, 40)
    returns = Checkpoint(place / "returns").completes(7, 70)
    async with Watching(locations=[f"{place}/*"]).running() as watching:
        message = await watching.reports(orders, 4, 40)
        await watching.reports(returns, 7, 70)
    assert (message.query, message.run_id, message.origin, message.cause) == (
        "orders",
        None,
        "checkpoint",
        "checkpoint",
    )
    assert message.checkpoint_location == str(place / "orders")
    committed = (place / "orders/commits/4").stat().st_mtime_ns // 1_000_000
    assert message.processed_at == committed


async def test_a_batch_is_observed_when_it_begins_and_when_it_is_done(orders: Checkpoint) -> None:
    async with Watching(locations=[str(orders.folder)]).running() as watching:
        await watching.reports(orders, 0, 10)
        orders.begins(1, 25)
        await holds(lambda: watching.of(orders)[-1].planned_batch_id == 1, "the batch is planned")
        assert watching.of(orders)[-1].sources[0].planned == {"orders": {0: 25}}
        orders.completes(1, 25)
        assert (await watching.reports(orders, 1, 25)).planned_batch_id is None


async def test_an_unchanged_query_is_not_reported_before_the_heartbeat(orders: Checkpoint) -> None:
    async with Watching(locations=[str(orders.folder)]).running() as watching:
        await watching.reports(orders, 0, 10)
        await watching.looked(10)
        assert len(watching.of(orders)) == 1


async def test_at_the_heartbeat_it_reports_that_the_query_exists(orders: Checkpoint) -> None:
    settings = {"locations": [str(orders.folder)], "heartbeat_s": 0.2}
    async with Watching(**settings).running() as watching:
        await holds(lambda: len(watching.of(orders)) >= 3, "it is observed again")
    first, *again = watching.of(orders)
    assert {one.cause for one in again} == {"refresh"}
    assert first.observed_at < again[0].observed_at


async def test_a_checkpoint_that_appears_later_is_detected(place: Path) -> None:
    async with Watching(locations=[f"{place}/*"]).running() as watching:
        await watching.fails(f"{place}/*", "no checkpoint matches")
        orders = Checkpoint(place / "orders").completes(0, 10)
        await watching.reports(orders, 0, 10)
        await watching.is_well()


async def test_checkpoints_of_a_cluster_carry_its_alias(place: Path, orders: Checkpoint) -> None:
    east = ClusterSettings(bootstrap_servers="east:9092", checkpoints=[f"{place}/*"])
    async with Watching(clusters={"east": east}).running() as watching:
        assert (await watching.reports(orders, 0, 10)).cluster == "east"


async def test_a_query_without_kafka_is_not_reported(place: Path, orders: Checkpoint) -> None:
    rate = Checkpoint(place / "rate")
    (rate.folder / "offsets/0").write_text("v1\n{}\n17")
    (rate.folder / "commits/0").write_text("v1\n{}")
    async with Watching(locations=[f"{place}/*"]).running() as watching:
        await watching.reports(orders, 0, 10)
        await watching.looked()
        assert watching.of(rate) == []
        assert watching.intake.failing == {}


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("orders", "orders"),
        ("jobs/orders/_checkpoint", "orders"),
        ("a b/Checkpoints", "a b"),
        ("shop/_checkpoints/spark_catalog/default/orders/paid/0", "spark_catalog.default.paid"),
    ],
)
async def test_a_query_is_named_by_its_folder(place: Path, folder: str, name: str) -> None:
    orders = Checkpoint(place / folder).completes(0, 10)
    async with Watching(locations=[str(place / folder)]).running() as watching:
        assert (await watching.reports(orders, 0, 10)).query == name


async def test_another_instances_checkpoint_is_not_reported(
    place: Path, orders: Checkpoint
) -> None:
    watching = Watching(locations=[f"{place}/*"])
    watching.others.add(orders.query_id)
    async with watching.running():
        await watching.looked(10)
        assert watching.observed == []
        watching.others.clear()
        await watching.reports(orders, 0, 10)
        watching.others.add(orders.query_id)
        orders.completes(1, 20)
        await watching.looked(10)
        assert len(watching.observed) == 1
        # It comes back: what was missed is observed, or the same position.
        watching.others.clear()
        await watching.reports(orders, 1, 20)


def driven(checkpoint: Checkpoint, location: str, **fields: Any) -> QueryState:
    return state(
        source({"orders": {0: 5}}),
        query_id=checkpoint.query_id,
        checkpoint_location=location,
        **fields,
    )


async def test_a_drivers_checkpoint_is_followed_where_the_settings_allow_it(place: Path) -> None:
    orders = Checkpoint(place / "orders").completes(3, 30)
    secret = Checkpoint(place.parent / "elsewhere").completes(3, 30)
    watching = Watching(follow=[str(place)])
    watching.queries[orders.query_id] = driven(orders, f"file:{place}/orders")
    watching.queries[secret.query_id] = driven(secret, f"file:{place}/../elsewhere")
    async with watching.running():
        await watching.reports(orders, 3, 30)
        await watching.looked()
        assert watching.of(secret) == []
        assert watching.intake.failing == {}


async def test_a_link_that_leads_elsewhere_is_not_followed(place: Path) -> None:
    secret = Checkpoint(place.parent / "elsewhere").completes(3, 30)
    orders = Checkpoint(place / "orders").completes(3, 30)
    (place / "link").symlink_to(secret.folder)
    (place / "loop").symlink_to("loop")
    for settings in ({"follow": [str(place)]}, {"locations": [f"{place}/*"]}):
        watching = Watching(**settings)
        watching.queries[secret.query_id] = driven(secret, f"{place}/link")
        watching.queries[orders.query_id] = driven(orders, f"{place}/orders")
        async with watching.running():
            await watching.reports(orders, 3, 30)
            await watching.looked()
            assert watching.of(secret) == []


async def test_a_missing_metadata_concerns_that_checkpoint_alone(
    place: Path, orders: Checkpoint
) -> None:
    lost = Checkpoint(place / "lost").completes(7, 70)
    (lost.folder / "metadata").unlink()
    (place / "other" / "offsets").mkdir(parents=True)  # no checkpoint
    async with Watching(locations=[f"{place}/*"]).running() as watching:
        await watching.fails("lost/metadata is missing", "Spark before 4.2", "Spark 4.2 on refuses")
        await watching.reports(orders, 0, 10)
        assert len(watching.intake.failing) == 1
        lost.write("metadata", b'{"id":"%s"}' % lost.query_id.encode())
        await watching.reports(lost, 7, 70)
        await watching.is_well()


async def test_what_is_followed_is_not_repeated_while_a_driver_is_known(place: Path) -> None:
    # A dead driver's query is forgotten some day, though its checkpoint lies there for ever.
    orders = Checkpoint(place / "orders").completes(3, 30)
    watching = Watching(follow=[str(place)], heartbeat_s=0.1)
    watching.queries[orders.query_id] = driven(orders, f"{place}/orders")
    async with watching.running():
        await watching.reports(orders, 3, 30)
        await watching.looked(10)
        assert len(watching.of(orders)) == 1
        watching.queries[orders.query_id] = driven(orders, f"{place}/orders", run_id=None)
        await holds(
            lambda: len(watching.of(orders)) >= 2, "it is repeated once no driver speaks of it"
        )


async def test_nothing_is_followed_unless_the_settings_allow_it(place: Path) -> None:
    orders = Checkpoint(place / "orders").completes(3, 30)
    watching = Watching()
    watching.queries[orders.query_id] = driven(orders, f"{place}/orders")
    async with watching.running():
        await watching.looked(10)
        assert watching.observed == []


async def test_a_folder_that_was_missing_for_weeks_is_detected_too(place: Path) -> None:
    missing = place / "missing"
    async with Watching(locations=[str(missing)]).running() as watching:
        await watching.fails(str(missing), "there is no checkpoint here")
        (checkpoint,) = watching.intake._watched.values()
        checkpoint.failures = 100_000
        await holds(lambda: checkpoint.failures > 100_000, "it is polled and fails again")
        later = Checkpoint(missing).completes(1, 11)
        await watching.reports(later, 1, 11)
        await watching.is_well()


async def test_a_new_query_in_an_old_place_is_another_query(place: Path) -> None:
    orders = Checkpoint(place / "orders").completes(5, 50)
    async with Watching(locations=[f"{place}/*"]).running() as watching:
        await watching.reports(orders, 5, 50)
        shutil.rmtree(orders.folder)
        anew = Checkpoint(place / "orders").completes(0, 60)
        await watching.reports(anew, 0, 60)
        await watching.is_well()


def copied(checkpoint: Checkpoint, folder: Path) -> Checkpoint:
    duplicate = copy.copy(checkpoint)
    duplicate.folder = shutil.copytree(checkpoint.folder, folder)
    return duplicate


async def test_of_two_that_hold_one_query_the_one_that_committed_later_is_watched(
    place: Path, orders: Checkpoint
) -> None:
    bak = copied(orders, place / "a.bak")
    orders.completes(6, 60)
    async with Watching(locations=[f"{place}/*"]).running() as watching:
        line = await watching.fails(f"{bak.folder}: a copy", orders.query_id)
        assert line.endswith(f"is watched at {orders.folder}")
        await watching.reports(orders, 6, 60)
        assert {one.batch_id for one in watching.observed} == {6}, "whichever was read first"
        # The copy was restored, and goes on.
        bak.completes(7, 70)
        assert (await watching.reports(orders, 7, 70)).checkpoint_location == str(bak.folder)
        await watching.fails(f"{orders.folder}: a copy", orders.query_id)


async def test_a_later_copy_of_the_last_batch_is_a_copy(place: Path, orders: Checkpoint) -> None:
    async with Watching(locations=[f"{place}/*"]).running() as watching:
        await watching.reports(orders, 0, 10)
        # `cp -r` dates the files anew.
        place.joinpath("copying").mkdir()
        bak = copied(orders, place / "copying/zzz")
        os.utime(bak.folder / "commits/0")
        bak.folder = bak.folder.rename(place / "zzz")
        line = await watching.fails(f"{bak.folder}: a copy", orders.query_id)
        assert line.endswith(f"is watched at {orders.folder}")


async def test_no_copy_is_observed_first_by_an_instance_that_becomes_the_owner(
    place: Path, orders: Checkpoint
) -> None:
    copied(orders, place / "a.bak")
    orders.completes(6, 60)
    watching = Watching(locations=[f"{place}/*"])
    watching.others.add(orders.query_id)
    async with watching.running():
        await watching.looked(10)
        watching.others.clear()
        await watching.reports(orders, 6, 60)
        await watching.fails("a.bak: a copy", orders.query_id)
    assert {one.batch_id for one in watching.observed} == {6}, "whichever was read first"


@pytest.mark.parametrize("after_s", [0.0, 0.6])
async def test_a_copy_that_is_brought_up_to_date_does_not_run(
    place: Path, orders: Checkpoint, after_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_ADVANCING_S", 0.5)
    bak = copied(orders, place / "zzz")
    async with Watching(locations=[f"{place}/*"]).running() as watching:
        await watching.reports(orders, 0, 10)
        orders.completes(1, 20)
        await watching.reports(orders, 1, 20)
        await asyncio.sleep(after_s)
        bak.completes(1, 20)
        await watching.looked(12)
    assert {one.checkpoint_location for one in watching.observed} == {str(orders.folder)}


async def test_a_copy_of_an_earlier_batch_that_goes_on_is_the_query(
    place: Path, orders: Checkpoint
) -> None:
    restored = copied(orders, place / "restored")
    for batch_id in range(1, 10):
        orders.completes(batch_id, 100 * batch_id)
    async with Watching(locations=[f"{place}/*"]).running() as watching:
        await watching.fails(f"{restored.folder}: a copy", orders.query_id)
        restored.completes(1, 50)
        await watching.reports(orders, 1, 50)
        await watching.fails(f"{orders.folder}: a copy", orders.query_id)


async def test_of_two_that_hold_one_query_the_one_that_its_driver_names_is_watched(
    place: Path, orders: Checkpoint
) -> None:
    copied(orders, place / "copy").completes(6, 60)
    watching = Watching(locations=[f"{place}/*"])
    watching.queries[orders.query_id] = driven(orders, f"file:{place}/orders")
    async with watching.running():
        await watching.fails(f"{place}/copy: a copy", orders.query_id)
        await watching.reports(orders, 0, 10)
        # Its driver has ended.
        watching.queries[orders.query_id] = driven(orders, f"file:{place}/orders", ended=True)
        await watching.reports(orders, 6, 60)


async def test_one_that_hangs_holds_up_no_other(
    place: Path, orders: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = Checkpoint(place / "hangs").completes(7, 70)
    answers = threading.Event()
    read = LocalFiles.read

    def read_once_it_answers(files: LocalFiles, name: str) -> bytes:
        # As of a mounted folder whose server is away.
        if files.location == str(hangs.folder):
            answers.wait(120)
        return read(files, name)

    monkeypatch.setattr(LocalFiles, "read", read_once_it_answers)
    settings = {"locations": [str(hangs.folder), str(orders.folder)], "timeout_s": 0.3}
    async with Watching(**settings).running() as watching:
        await watching.fails(str(hangs.folder), "no answer within 0.3 s")
        orders.completes(1, 20)
        await watching.reports(orders, 1, 20)
        answers.set()
        await watching.reports(hangs, 7, 70)
        await watching.is_well()


async def test_partitions_beyond_the_limits_are_refused_until_they_are_gone(place: Path) -> None:
    checkpoint = Checkpoint(place / "q").completes(0, 5)
    watching = Watching(locations=[f"{place}/*"])
    async with watching.running():
        await watching.reports(checkpoint, 0, 5)
        checkpoint.begins(1, 9, partition=100_000)
        await watching.fails(str(checkpoint.folder), "partition 100000", "limits.partitions")
        before = len(watching.of(checkpoint))
        await watching.looked()
        assert watching.intake.failing
        assert len(watching.of(checkpoint)) == before
        checkpoint.completes(1, 9)
        await watching.reports(checkpoint, 1, 9)
        await watching.is_well()
