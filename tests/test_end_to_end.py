"""The main job: a real query's lag, against lag computed from its checkpoint by another client."""

from __future__ import annotations

import os
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end import (
    START_S,
    Checkpoint,
    Topics,
    answer,
    batch_observed,
    kill,
    lag_by_partition,
    lag_of,
    process,
    reports,
    service,
)
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.service.metrics.collector import TraceCollector
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def order_totals(topics: Topics, kafka: LocalKafka, checkpoint: Path, log: Path) -> Any:
    return process(
        topics,
        log,
        "sparklag_jobs.demo.order_totals",
        *("--bootstrap-servers", kafka.bootstrap_servers, "--checkpoint", str(checkpoint)),
        *("--orders-topic", topics.orders, "--totals-topic", topics.totals),
        *("--max-offsets-per-trigger", "100", "--trigger-interval", "5 seconds"),
    )


def agrees(url: str, topics: Topics, checkpoint: Checkpoint) -> bool:
    batch = checkpoint.committed_batches()[-1]
    event = answer(f"{url}/lag/orders")
    newest = topics.newest_event()
    if event is None or event["batch_id"] != batch or event["event_id"] != newest.event_id:
        return False
    expected = topics.lag_after(checkpoint, batch)
    total = sum(expected.values())
    return lag_by_partition(event) == expected and event["total_lag"] == total


def test_lag_agrees_while_the_query_runs_after_it_was_killed_and_after_it_restarts(
    kafka: LocalKafka, topics: Topics, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    checkpoint = Checkpoint(folder)
    topics.order(1_000)
    with service(topics, kafka, tmp_path / "service.log") as url:
        agrees_now = partial(agrees, url, topics, checkpoint)
        with order_totals(topics, kafka, folder, tmp_path / "first.log") as driver:
            wait_for(lambda: batch_observed(url) >= 1, "a batch was observed", START_S)
            # Between two batches: what was observed is what the checkpoint holds.
            wait_for(agrees_now, "lag agrees while the query runs", START_S)
            running = lag_of(url, "orders")
            assert running["status"] == "OK"
            assert running["total_lag"] > 0

            def stopped_between_batches() -> bool:
                # While it is suspended no batch can be committed whose report the kill takes along.
                os.killpg(driver.pid, signal.SIGSTOP)
                is_between = batch_observed(url) == checkpoint.committed_batches()[-1]
                if not is_between:
                    os.killpg(driver.pid, signal.SIGCONT)
                return is_between

            wait_for(stopped_between_batches, "its newest batch is observed", START_S)
            kill(driver)

        topics.order(130)
        wait_for(agrees_now, "lag grows after kill -9")
        dead = lag_of(url, "orders")
        assert dead["total_lag"] >= 130

        with order_totals(topics, kafka, folder, tmp_path / "second.log"):
            caught_up = partial(reports, url, "orders", total_lag=0)
            wait_for(caught_up, "the restarted query catches up", START_S)
            wait_for(agrees_now, "lag agrees after the restart", START_S)
            again = lag_of(url, "orders")
            assert again["query_id"] == dead["query_id"]
            assert again["run_id"] != dead["run_id"]


def test_with_the_service_embedded_the_driver_answers_for_its_queries(
    kafka: LocalKafka, topics: Topics, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    checkpoint = Checkpoint(folder)
    topics.order(600)
    arguments = ["tests.drivers.embedded", kafka.bootstrap_servers, topics.orders, str(folder)]
    log = tmp_path / "driver.log"
    with process(topics, log, *arguments, stdout=subprocess.PIPE) as driver:
        url = driver.stdout.readline().decode().strip()
        wait_for(lambda: batch_observed(url) >= 1, "a batch was observed", START_S)
        wait_for(partial(agrees, url, topics, checkpoint), "lag agrees", START_S)
        assert lag_of(url, "orders")["measured_by"] == "embedded"

        def is_warned_of() -> bool:
            loop = answer(f"{url}/lag/loop")
            reads = f"the query also reads {topics.lag}, a topic of sparklag's own"
            return loop is not None and loop["status"] == "WARN" and reads in loop["reason"]

        wait_for(is_warned_of, "the query that reads its own lag is warned of", START_S)
        assert f"also matches sparklag's own {topics.lag}" in log.read_text()
        driver.terminate()
        assert driver.wait(60) == -signal.SIGTERM
        # The last word is its own: no other service takes its query over for dead.
        last = topics.newest_event()
        assert (last.status, last.reason) == ("FINISHED", "the driver process exited")
        assert last.measured_by == "embedded"


@pytest.mark.slow
def test_each_batch_of_a_driver_is_one_trace_from_the_callback_to_the_event(
    kafka: LocalKafka, topics: Topics, second_client: SecondClient, tmp_path: Path
) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    topics.order(1_000)
    with TraceCollector() as collector:
        topics.environment["SPARKLAG_TRACES__ENDPOINT"] = collector.endpoint
        topics.environment["SPARKLAG_TRACES__INTERVAL_S"] = "0.5"
        with (
            service(topics, kafka, tmp_path / "service.log"),
            order_totals(topics, kafka, tmp_path / "checkpoint", tmp_path / "driver.log"),
        ):
            wait_for(lambda: len(collector.spans()) >= 3 * 4, "three traces", START_S)
            spans = collector.spans()
            committed = checkpoint.committed_batches()
    traces = {span.trace_id for span in spans}
    batches = [span.attributes["sparklag.batch_id"] for span in spans if span.name == "published"]
    assert len(spans) == 4 * len(traces) == 4 * len(batches)
    assert batches == sorted({*batches})
    assert {*batches} <= {*committed}
    # Between the batch's end, by Spark's account, and the event; the machine may be slow.
    for trace_id in traces:
        times = [t for s in spans if s.trace_id == trace_id for t in (s.began_ns, s.ended_ns)]
        assert max(times) - min(times) < START_S * 1e9
    headers = [dict(message.headers() or ()) for message in second_client.read_all(topics.lag)]
    values = [result.get("traceparent") for result in headers]
    linked = {value.decode().split("-")[1] for value in values if isinstance(value, bytes)}
    assert traces <= linked
