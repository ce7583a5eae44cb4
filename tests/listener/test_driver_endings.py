"""However a driver ends, its last position is published and the service reports its end."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end import Topics, answer, service
from tests.listener.driver_process import PROMPT, PYTHON, WITHOUT_UNIX, DriverProcess, spark_submit
from tests.listener.offsets_topic import in_order
from tests.local_kafka import LocalKafka
from tests.runbook import is_quoted
from tests.second_client import SecondClient
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@dataclass(frozen=True)
class End:
    action: str
    exit_code: int | None
    """None: it does not end."""
    status: str
    reason: str
    number: signal.Signals | None = None
    """None: it ends by itself."""
    prints: str = "read all"
    causes: tuple[str, ...] = ("terminated",)
    """The allowed causes of the last observation, where the driver has read all."""
    is_quiet: bool = True
    """Nothing of ours is in the driver's log."""
    program: Callable[[], Sequence[str]] = lambda: PYTHON


POSITION = ("progress", "idle", "refresh")
STOPPED = "the driver stopped Spark"
EXITED = "the driver process exited"
INTERRUPTED = "the driver was interrupted: Ctrl-C, a signal, or all jobs were cancelled"
GONE = "the driver stopped reporting: it died or cannot reach Kafka"
CLOSED = "no longer observed: the handle was closed; the position may be out of date"
ENDS = [
    End("forks_and_returns", 0, "FINISHED", EXITED),
    End("raises", 1, "FAILED", "the driver failed: ValueError: the driver failed"),
    End("waits_for_a_signal", -signal.SIGTERM, "FINISHED", EXITED, signal.SIGTERM),
    End("waits_for_a_signal", -signal.SIGINT, "FINISHED", INTERRUPTED, signal.SIGINT),
]
OTHERS = [
    # Its input ends, as a prompt's does at Ctrl-D.
    End("returns", 0, "FINISHED", EXITED, program=lambda: PROMPT),
    End("stops_spark_then_closes", 0, "FINISHED", STOPPED, program=lambda: WITHOUT_UNIX),
    # The last events are on their way to the listener when the driver ends.
    End(
        *("returns_where_no_thread_can_be_started_any_more", 0, "FINISHED"), "the query was stopped"
    ),
    End("handles_sigterm_itself", 0, "UNKNOWN", CLOSED, signal.SIGTERM, causes=("closed",)),
    End("stops_its_query_and_waits", None, "FINISHED", "the query was stopped"),
    End(
        "closes_its_handle_and_waits", None, "UNKNOWN", CLOSED, prints="closed", causes=("closed",)
    ),
    End("stops_spark_and_exits_with_3", 3, "FINISHED", STOPPED),
    End("stops_spark_then_closes", 0, "FINISHED", STOPPED),
    End("stops_spark_and_begins_anew", 0, "FINISHED", STOPPED),
    End("stops_spark_in_a_batch", 0, "FINISHED", STOPPED, prints="in a batch", is_quiet=False),
    End(
        *("its_spark_stops_by_itself", 0, "FAILED"),
        "the query failed: SparkContext was shut down, and not by its driver",
    ),
    End(
        *("its_query_fails", 0, "FAILED", "the query failed: ValueError: the batch broke"),
        prints="failed",
    ),
    End(
        *("sleeps_in_a_batch", -signal.SIGINT, "FINISHED", INTERRUPTED, signal.SIGINT),
        prints="in a batch",
        is_quiet=False,
    ),
    End("cancels_all_jobs", 0, "FINISHED", INTERRUPTED, prints="failed", is_quiet=False),
    End("loses_its_jvm_to_sigterm", 1, "FINISHED", INTERRUPTED),
    End(
        *("waits_for_a_signal", 128 + signal.SIGTERM, "FINISHED", INTERRUPTED, signal.SIGTERM),
        is_quiet=False,
        program=spark_submit,
    ),
    End("loses_its_jvm_and_returns", 0, "STOP", GONE, causes=POSITION),
    End("waits_for_a_signal", -signal.SIGKILL, "STOP", GONE, signal.SIGKILL, causes=POSITION),
]


@pytest.fixture(scope="module")
def topics(second_client: SecondClient) -> Topics:
    return Topics(second_client)


@pytest.fixture(scope="module")
def url(
    kafka: LocalKafka, topics: Topics, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with service(topics, kafka, tmp_path_factory.mktemp("service") / "service.log") as url:
        yield url


@pytest.mark.parametrize(
    "end",
    [*ENDS, *(pytest.param(end, marks=pytest.mark.slow) for end in OTHERS)],
    ids=lambda end: "-".join([end.action, *([end.number.name] if end.number else [])]),
)
def test_its_end_is_as_it_would_be_and_shown_for_what_it_is(
    end: End, url: str, topics: Topics, second_client: SecondClient, tmp_path: Path
) -> None:
    offsets_topic = topics.environment["SPARKLAG_OFFSETS_TOPIC"]
    with DriverProcess(
        *(second_client, end.action, tmp_path), program=end.program(), offsets_topic=offsets_topic
    ) as process:

        def event() -> dict[str, Any]:
            return answer(f"{url}/lag/{process.query_id}") or {}

        process.prints(end.prints)
        if end.number is not None:
            in_first = end.prints != "read all"
            wait_for(lambda: (event().get("batch_id") is None) == in_first, "it is observed")
            process.send_signal(end.number)
        if end.exit_code is not None:
            assert process.ends() == end.exit_code, process.output()
        with suppress(AssertionError):
            wait_for(lambda: event().get("status") == end.status, end.status)
        shown = event()
        assert (shown.get("status"), shown.get("reason")) == (end.status, end.reason), shown
        if end.status == "STOP":
            assert is_quoted(url, process.query_id, "SparklagQueryStopped")
        in_order(process.published.observations(process.query_id))
        if end.prints in ("read all", "closed"):
            assert process.last().cause in end.causes
        if end.is_quiet:
            assert process.noise() == [], process.output()
        if end.action == "forks_and_returns":
            assert "child returned: 0" in process.lines
            assert f"child was terminated: {-signal.SIGTERM}" in process.lines
        if end.action == "raises":
            assert process.lines[-1] == "ValueError: the driver failed"
        if end.action == "stops_spark_and_begins_anew":
            (second,) = (line for line in process.lines if line.startswith("second: "))
            received = process.published.observations(second.partition(": ")[2])
            assert (received[0].cause, received[-1].cause) == ("started", "terminated")
            in_order(received)


@pytest.mark.slow
def test_where_kafka_is_away_it_ends_all_the_same_and_reports_what_is_lost(
    second_client: SecondClient, tmp_path: Path
) -> None:
    with DriverProcess(second_client, "returns", tmp_path, servers="127.0.0.1:9") as process:
        process.prints("read all")
        assert process.ends() == 0, process.output()
        ours = process.noise()
        assert len(ours) == 2, process.output()
        assert "cannot publish" in ours[0]
        assert "connection refused" in ours[0]
        assert "not published" in ours[1]
        assert "was destroyed" not in process.output()
