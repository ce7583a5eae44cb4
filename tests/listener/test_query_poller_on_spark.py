"""A real Spark that loses events: polling recovers them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql.functions import window

from sparklag_listener.classic.queries import ClassicQueries
from sparklag_schemas import Observation
from tests.listener.conftest import Driver
from tests.listener.drivers import read_kafka
from tests.listener.offsets_topic import causes, in_order
from tests.listener.queries_contract import assert_answers
from tests.waiting import DEADLINE_S

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def activities(observations: Sequence[Observation]) -> list[str | None]:
    return [each.activity for each in observations if each.cause == "refresh"]


def test_a_batch_that_takes_long_reports_that_its_query_runs(driver: Driver) -> None:
    handle = driver.observe(driver.servers, heartbeat_s=0.5)
    hold, held, go_on = threading.Event(), threading.Event(), threading.Event()

    def wait(batch: Any, batch_id: int) -> None:
        if hold.is_set():
            held.set()
            go_on.wait(DEADLINE_S)

    query = driver.start(name="slow", write=wait)
    query.processAllAvailable()
    position = driver.end()
    hold.set()
    try:
        driver.send()
        assert held.wait(DEADLINE_S)
        before = len(driver.published.observations(query.id))
        received = driver.published.until(
            query.id,
            lambda received: causes(received[before:]).count("refresh") >= 4,
            "four refreshes in one batch",
        )
    finally:
        go_on.set()
    for observation in received:
        if observation.cause == "refresh":
            assert (observation.query, observation.run_id) == ("slow", query.runId)
            assert observation.batch is None
    assert received[-1].activity == "running"
    assert None not in activities(received[before:])
    assert received[-1].sources[0].processed == position
    query.processAllAvailable()
    query.stop()
    driver.published.await_cause(query.id, "terminated")
    handle.close()
    in_order(driver.published.observations(query.id))
    stats = handle.stats()
    assert (stats.failed, stats.dropped) == (0, 0)


@pytest.mark.parametrize(
    ("trigger", "options"),
    [
        # Spark begins batches at whole multiples: with "1 hour" one would come on the hour.
        ({"processingTime": "1000 days"}, {}),
        pytest.param(
            *(None, {"minOffsetsPerTrigger": "100", "maxTriggerDelay": "1h"}),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["trigger", "held back"],
)
def test_a_query_that_begins_no_batch_waits_whatever_there_is_to_read(
    driver: Driver, trigger: dict[str, Any] | None, options: dict[str, Any]
) -> None:
    driver.observe(driver.servers, heartbeat_s=0.3)
    query = driver.start(trigger=trigger, **options)
    # It takes the first batch as it is.
    driver.published.await_cause(query.id, "progress")
    driver.send(20)
    before = len(driver.published.observations(query.id))
    received = driver.published.until(
        query.id, lambda received: activities(received[before:])[-2:] == ["waiting"] * 2, "it waits"
    )
    assert sum((received[-1].sources[0].processed or {})[driver.topic].values()) == 10


def test_a_batch_by_sparks_own_account_reports_what_limits_it_and_its_state(driver: Driver) -> None:
    driver.observe(driver.servers)
    options = {"subscribe": driver.topic, "maxOffsetsPerTrigger": "4"}
    read = read_kafka(driver.spark, driver.servers, **options)
    windows = read.withWatermark("timestamp", "1 second").groupBy(window("timestamp", "10 seconds"))
    query = driver.start(frame=windows.count(), output_mode="update")
    observations = driver.published.until(query.id, driver.at_end(), "the end")
    batches = [each.batch for each in observations if each.batch is not None and each.batch.rows]
    limited = [one.rate_limited for one in batches]
    assert limited == [True] * (len(batches) - 1) + [False]
    assert len(batches) > 1
    for one in batches:
        assert one.state_rows is not None
        assert one.state_rows > 0
        assert one.state_memory_bytes is not None
        assert one.max_event_time_at is not None
        assert abs(one.max_event_time_at - one.started_at) < 3_600_000
    watermarks = [one.watermark_at for one in batches]
    assert watermarks[0] is None
    assert watermarks[-1] == max(one.max_event_time_at or 0 for one in batches[:-1]) - 1_000


def test_what_a_session_answers_is_what_spark_reports_of_its_queries(driver: Driver) -> None:
    queries = ClassicQueries(driver.spark)
    query = assert_answers(driver.spark, queries, driver.start)
    assert queries.last_progress(query.runId, None) is None, "it is forgotten"
