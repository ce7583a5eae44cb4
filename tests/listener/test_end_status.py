"""However a driver ends, the service tells what became of its query: nothing that is in order is an
alarm, and nothing that is not passes for an end."""

from __future__ import annotations

import signal
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end import Topics, answer, service
from tests.listener.driver_process import DriverProcess, driver
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@dataclass(frozen=True)
class End:
    """One of a driver's ends: what it does, what is done to it, and what is to be told of it."""

    action: str
    says: str
    status: str
    reason: str
    number: signal.Signals | None = None
    """None: it ends by itself."""
    interpreter: tuple[str, ...] = ()


STOPPED = "the driver stopped Spark"
ENDED = "the driver process exited"
GONE = "the driver stopped reporting: it died or cannot reach Kafka"
CLEAN = (
    End("stops_its_query_and_waits", "read all", "FINISHED", "the query was stopped"),
    End("stops_spark_in_a_batch", "in a batch", "FINISHED", STOPPED),
    End("stops_spark_and_exits_with_3", "read all", "FINISHED", STOPPED),
    End("returns", "read all", "FINISHED", ENDED),
    End("waits_for_sigterm", "read all", "FINISHED", ENDED, signal.SIGTERM),
    # Its input ends, as a prompt's does at Ctrl-D.
    End("returns", "read all", "FINISHED", ENDED, interpreter=("-i",)),
)
KILLED = (
    End("waits_for_sigterm", "read all", "STOP", GONE, signal.SIGKILL),
    End("loses_its_jvm_and_returns", "read all", "STOP", GONE),
)
FAILED = (
    End("its_query_fails", "failed", "FAILED", "the query failed: ValueError: the batch broke"),
    End(
        *("its_spark_stops_by_itself", "read all", "FAILED"),
        "the query failed: SparkContext was shut down, and not by its driver",
    ),
    End("raises", "read all", "FAILED", "the driver failed: ValueError: the driver failed"),
)
CLOSED = (
    End(
        *("closes_its_handle_and_waits", "closed", "UNKNOWN"),
        "no longer observed: the handle was closed; the position may be out of date",
    ),
)


@pytest.mark.parametrize("ends", [CLEAN, (*KILLED, *FAILED, *CLOSED)], ids=["clean", "others"])
def test_each_end_is_told_for_what_it_is(
    kafka: LocalKafka, second_client: SecondClient, ends: tuple[End, ...], tmp_path: Path
) -> None:
    topics = Topics(second_client)
    told = []
    with service(topics, kafka, tmp_path / "service.log") as url, ExitStack() as stack:

        def event_of(process: DriverProcess) -> dict[str, Any]:
            return answer(f"{url}/lag/{process.query_id}") or {}

        def is_observed(process: DriverProcess) -> bool:
            return bool(event_of(process))

        def drive(number: int, end: End) -> DriverProcess:
            folder = tmp_path / f"{topics.orders}-{number}"
            folder.mkdir()
            offsets_topic = topics.environment["SPARKLAG_OFFSETS_TOPIC"]
            return stack.enter_context(
                driver(
                    second_client,
                    end.action,
                    folder,
                    interpreter=end.interpreter,
                    offsets_topic=offsets_topic,
                )
            )

        processes = [drive(number, end) for number, end in enumerate(ends)]
        for end, process in zip(ends, processes, strict=True):
            process.says(end.says)
            if end.number is not None:
                wait_for(partial(is_observed, process), f"{end}: it is observed")
                process.send_signal(end.number)
        for end, process in zip(ends, processes, strict=True):

            def is_told(process: DriverProcess = process, end: End = end) -> bool:
                return event_of(process).get("status") == end.status

            with suppress(AssertionError):
                wait_for(is_told, f"{end}")
            event = event_of(process)
            told.append((end.action, event.get("status"), event.get("reason")))
    expected = [(end.action, end.status, end.reason) for end in ends]
    assert told == expected
