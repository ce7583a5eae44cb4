"""Whatever dies, the offset store has every batch once."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from tests.databases.postgresql import PostgreSQLServer
from tests.end_to_end import START_S, Checkpoint, Topics
from tests.faults.report import Row
from tests.faults.service_processes import ServiceProcess
from tests.faults.tools import Tell
from tests.local_kafka import LocalKafka
from tests.restarting_query import RestartingQuery
from tests.second_client import SecondClient
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(3600)]

KILLS = (9, pytest.param(50, marks=pytest.mark.soak))
_BATCHES = "SELECT generation, first_batch_id, batch_id FROM sparklag_batches ORDER BY 1, 3"
_RANGES = (
    "SELECT partition_id, from_offset, until_offset FROM sparklag_ranges"
    " ORDER BY partition_id, generation, batch_id"
)


def complaints(store: str) -> list[str]:
    """Batches below the newest that are missing, or twice; offsets that are."""
    result = []
    with psycopg.connect(store) as connection:
        following = 0
        for generation, first, last in connection.execute(_BATCHES):
            if generation != 0:
                result.append(f"batch {last} is in generation {generation}")
            if first != following:
                result.append(f"batches {first} to {last} come where {following} was to come")
            following = last + 1
        ended: dict[int, int] = {}
        for partition, begin, until in connection.execute(_RANGES):
            if begin != ended.get(partition, begin):
                result.append(f"partition {partition}: from {begin} after {ended[partition]}")
            ended[partition] = until
    return result


@pytest.mark.slow
@pytest.mark.parametrize("kills", KILLS)
def test_driver_service_or_database_killed(
    kills: int,
    kafka: LocalKafka,
    second_client: SecondClient,
    fault_report: Row,
    tmp_path: Path,
    tell: Tell,
    seed: int,
) -> None:
    tell(f"killing at random moments; the same again: --faults-seed={seed}")
    chance = random.Random(seed)
    topics = Topics(second_client)
    with ExitStack() as stack:
        database = stack.enter_context(PostgreSQLServer())
        query = RestartingQuery(kafka, topics, tmp_path, database.url)
        topics.environment["SPARKLAG_STORE__URL"] = database.url
        topics.environment["SPARKLAG_BOOTSTRAP_SERVERS"] = kafka.bootstrap_servers
        service = ServiceProcess("service", tmp_path, topics.environment)
        stack.callback(service.kill)
        service.start()
        driver = stack.enter_context(ExitStack())
        driver.enter_context(query.driver("publish"))
        topics.order(20)
        wait_for(lambda: query.has_kept(0), "the first batch is recorded", START_S)
        victims = ["driver", "service", "database"] * (kills // 3 + 1)
        chance.shuffle(victims)
        for victim in victims[:kills]:
            topics.order(10)
            time.sleep(chance.uniform(0.0, 3.0))
            if victim == "driver":
                driver.close()
                driver.enter_context(query.driver("publish"))
                wait_for(lambda: runs_on(query, topics), "the query runs on", START_S)
            elif victim == "service":
                service.kill()
                service.start()
            else:
                database.kill()
                time.sleep(chance.uniform(0.0, 2.0))
                database.start()
        topics.order(30)
        checkpoint = Checkpoint(query.checkpoint)

        def all_is_recorded() -> bool:
            committed = checkpoint.committed_batches()[-1]
            read = checkpoint.processed(committed, topics.orders) == topics.ends()
            return read and query.has_kept(committed)

        wait_for(all_is_recorded, "the last batch is recorded", START_S)
        result = complaints(database.url)
    fault_report.lost = len(result)
    fault_report.note = f"seed {seed}"
    assert not result, result


def runs_on(query: RestartingQuery, topics: Topics) -> bool:
    checkpoint = Checkpoint(query.checkpoint)
    processed = checkpoint.processed(checkpoint.committed_batches()[-1], topics.orders)
    return processed == topics.ends()
