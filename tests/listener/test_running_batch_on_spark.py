"""Inside the running batches of a real Spark: tasks, pace, stragglers, hangs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparklag_listener.classic import queries as queries_module
from sparklag_listener.classic.queries import ClassicQueries
from sparklag_schemas import RunningBatch
from tests.listener.conftest import Driver
from tests.listener.drivers import read_kafka
from tests.waiting import DEADLINE_S, wait_for

pytestmark = pytest.mark.spark

Start = Callable[..., StreamingQuery]


@pytest.fixture
def start(spark: SparkSession, tmp_path: Path) -> Iterator[Start]:
    """Starts queries whose every task has one row, and sleeps for `sleep_ms` (SQL of `value`)."""
    started: list[StreamingQuery] = []

    def start(
        tasks: int, sleep_ms: str = "0", function: Callable[[Any, int], None] | None = None
    ) -> StreamingQuery:
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", tasks)
        sleep = f"java_method('java.lang.Thread', 'sleep', cast({sleep_ms} as bigint))"
        slept = rows.option("numPartitions", tasks).load().selectExpr("value", sleep)
        writer = slept.writeStream.option("checkpointLocation", str(tmp_path / str(len(started))))
        writer = writer.foreachBatch(function) if function is not None else writer.format("noop")
        query = writer.start()
        started.append(query)
        return query

    yield start
    for query in started:
        query.stop()


def running(queries: ClassicQueries, query: StreamingQuery) -> RunningBatch | None:
    active = queries.list_active(with_activity={str(query.runId)}).queries
    return next(each.running_batch for each in active if each.run_id == query.runId)


def until(
    queries: ClassicQueries, query: StreamingQuery, condition: Callable[[RunningBatch], bool]
) -> RunningBatch:
    kept: list[RunningBatch] = []

    def keeps() -> bool:
        batch = running(queries, query)
        if batch is not None and condition(batch):
            kept.append(batch)
        return bool(kept)

    wait_for(keeps, "the batch is so")
    return kept[0]


@pytest.mark.kafka
def test_what_a_batch_in_real_time_mode_has_read_is_known_while_it_runs(driver: Driver) -> None:
    topic, out = (driver.client.create(f"{driver.topic}-{name}") for name in ("in", "out"))
    frame = read_kafka(driver.spark, driver.servers, subscribe=topic)
    sink = {"kafka.bootstrap.servers": driver.servers, "topic": out}
    sink["checkpointLocation"] = str(driver.checkpoints / "real-time")
    writer = frame.writeStream.format("kafka").options(**sink).outputMode("update")
    real_time: dict[str, Any] = {"realTime": "10 minutes"}
    query = writer.trigger(**real_time).start()
    try:
        queries = ClassicQueries(driver.spark)
        until(queries, query, lambda batch: batch.tasks_running == 1)
        driver.send(1_200, topic)
        until(queries, query, lambda batch: batch.rows_read == 1_200)
    finally:
        query.stop()


@pytest.mark.slow
def test_the_end_of_a_batch_of_even_tasks_is_estimated(spark: SparkSession, start: Start) -> None:
    queries = ClassicQueries(spark)
    query = start(20, "1000")
    received: list[RunningBatch] = []

    def is_over() -> bool:
        batch = running(queries, query)
        if batch is not None and batch.batch_id == 0:
            received.append(batch)
        return batch is not None and batch.batch_id == 1

    wait_for(is_over, "the first batch is over")
    assert {batch.tasks_total for batch in received} <= {0, 20}
    done = [batch.tasks_done for batch in received]
    assert done == sorted(done)
    times = [(batch.started_at, batch.progressed_at, batch.observed_at) for batch in received]
    assert times == [tuple(sorted(each)) for each in times]
    assert all(batch.straggler is None and batch.tasks_failed == 0 for batch in received)
    estimated = [batch for batch in received if 5 <= batch.tasks_done <= 14]
    assert estimated
    for batch in estimated:
        left = 20 - batch.tasks_done
        # One core: at the batch's own pace, and no faster than its tasks.
        pace_s = (batch.observed_at - batch.started_at) / 1000 / batch.tasks_done
        assert batch.mean_task_s is not None
        assert batch.remaining_s is not None
        assert 0.9 < batch.mean_task_s <= pace_s
        assert 0.5 * left * batch.mean_task_s < batch.remaining_s < 1.25 * left * pace_s, batch


def test_a_task_far_longer_than_the_others_is_named(spark: SparkSession, start: Start) -> None:
    queries = ClassicQueries(spark)
    query = start(8, "if(value % 8 = 5, 600000, 100)")
    # There is one core. What is read while a task ends may be of before and after.
    until(queries, query, lambda batch: batch.straggler is not None and batch.tasks_done == 5)
    batch = until(queries, query, lambda batch: True)
    straggler = batch.straggler
    assert straggler is not None
    assert (straggler.task_index, straggler.attempt, straggler.executor_id) == (5, 0, "driver")
    assert straggler.running_s > 3 * straggler.mean_task_s
    assert (batch.batch_id, batch.tasks_total) == (0, 8)
    assert (batch.tasks_done, batch.tasks_running) == (5, 1)
    # It holds up the batch for nobody knows how long.
    assert batch.remaining_s is None
    later = until(queries, query, lambda later: later.observed_at > batch.observed_at + 1000)
    assert (later.progressed_at, later.started_at) == (batch.progressed_at, batch.started_at)


@pytest.mark.slow
def test_user_code_hanging_in_the_first_batch_has_no_job(spark: SparkSession, start: Start) -> None:
    go_on = threading.Event()

    def hang(batch: Any, batch_id: int) -> None:
        go_on.wait(DEADLINE_S)
        batch.count()

    try:
        queries = ClassicQueries(spark)
        query = start(2, "1000", hang)
        first = until(queries, query, lambda batch: batch.batch_id == 0)
        later = until(queries, query, lambda batch: batch.observed_at > first.observed_at + 1000)
        assert (later.batch_id, later.jobs, later.tasks_total) == (0, 0, 0)
        assert later.progressed_at == first.progressed_at
        go_on.set()
        goes_on = until(queries, query, lambda batch: batch.tasks_running > 0)
        assert goes_on.progressed_at > first.progressed_at
        # From 4.2 on Spark submits the stage that sums up as a job of its own, later. Until then
        # nobody knows for how long that will run.
        assert goes_on.tasks_total in (2, 3)
        assert goes_on.tasks_total == 2 or goes_on.remaining_s is None
    finally:
        go_on.set()


@pytest.mark.slow
def test_a_job_that_ends_between_two_looks_is_progress(spark: SparkSession, start: Start) -> None:
    work, worked, leave = threading.Event(), threading.Event(), threading.Event()

    def work_once(batch: Any, batch_id: int) -> None:
        work.wait(DEADLINE_S)
        batch.count()
        worked.set()
        leave.wait(DEADLINE_S)

    try:
        queries = ClassicQueries(spark)
        query = start(1, "0", work_once)
        before = until(queries, query, lambda batch: batch.batch_id == 0)
        work.set()
        wait_for(worked.is_set, "its job has ended")
        after = until(queries, query, lambda batch: batch.jobs == 0)
        assert after.progressed_at > before.progressed_at
        later = until(queries, query, lambda later: later.observed_at > after.observed_at)
        assert later.progressed_at == after.progressed_at
    finally:
        work.set()
        leave.set()


@pytest.mark.slow
def test_ended_jobs_count_and_queries_are_kept_apart(spark: SparkSession, start: Start) -> None:
    counted, go_on = threading.Event(), threading.Event()

    def count_twice(batch: Any, batch_id: int) -> None:
        batch.write.format("noop").mode("append").save()
        counted.set()
        go_on.wait(DEADLINE_S)
        batch.write.format("noop").mode("append").save()

    try:
        queries = ClassicQueries(spark)
        twice = start(3, "1500", count_twice)
        until(queries, twice, lambda batch: batch.tasks_total == 3 and batch.jobs == 1)
        # Only now: there is one core, and the job submitted first gets it.
        other = start(1, "600000")
        wait_for(counted.is_set, "its first job has ended")
        between = until(queries, twice, lambda batch: batch.jobs == 0)
        assert (between.tasks_done, between.tasks_total, between.remaining_s) == (3, 3, None)
        go_on.set()
        until(queries, twice, lambda batch: batch.tasks_total == 6 and batch.tasks_done >= 3)
        only = until(queries, other, lambda batch: batch.tasks_running == 1)
        assert (only.batch_id, only.tasks_total, only.tasks_done, only.jobs) == (0, 1, 0, 1)
        assert only.mean_task_s is None
        assert only.remaining_s is None
    finally:
        go_on.set()


@pytest.mark.slow
def test_a_spark_that_does_not_tell_its_jobs_costs_the_field_alone(
    spark: SparkSession,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(jvm: Any, context: Any) -> Any:
        raise Py4JError("there is no statusStore")

    monkeypatch.setattr(queries_module, "ActiveJobs", refuse)
    caplog.set_level(logging.DEBUG, "sparklag")
    queries = ClassicQueries(spark)
    query = start(1, "600000")

    def runs() -> bool:
        active = queries.list_active(with_activity={str(query.runId)}).queries
        return any(each.activity == "running" and each.running_batch is None for each in active)

    wait_for(runs, "it runs")
    assert runs()
    logged = [record.getMessage() for record in caplog.records if "active jobs" in record.message]
    assert logged == ["sparklag: cannot read Spark's active jobs: there is no statusStore"]
