"""`sparklag lag` as a probe, and with `--watch` where there is no terminal."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

import pytest
from msgspec.structs import replace

from sparklag_schemas import LagEvent, encode
from sparklag_service.cli.lag import Read, Reading, objection, print_changes
from sparklag_service.errors import ServiceError
from tests.messages import lag_event
from tests.schemas.presentation.test_sentences import NOW_MS, event_of, partition
from tests.service.cli.terminals import command, environment
from tests.service.cli.test_cli import sparklag
from tests.service.live.live_server import LiveServer

EVENT = lag_event()
LATER = replace(EVENT, measured_at=EVENT.measured_at + 10_000)
"""Nothing has changed but the time."""
STALLED = replace(LATER, status="STALL")


def reads(*results: LagEvent | ServiceError) -> Read:
    left = iter(results)

    def read() -> Reading:
        result = next(left, None)
        if result is None:
            raise KeyboardInterrupt
        if isinstance(result, ServiceError):
            raise result
        return Reading(result, encode(result))

    return read


def shown(*results: LagEvent | ServiceError) -> list[LagEvent]:
    events: list[LagEvent] = []
    with pytest.raises(KeyboardInterrupt):
        print_changes(reads(*results), 0, lambda reading: events.append(reading.event))
    return events


def test_each_change_is_shown_once() -> None:
    assert shown(EVENT, EVENT, LATER, STALLED, STALLED, EVENT) == [EVENT, STALLED, EVENT]


def test_an_outage_and_its_end_are_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    away = ServiceError("no service\x1b[2J")
    assert shown(EVENT, away, away, EVENT, STALLED) == [EVENT, STALLED]
    assert capsys.readouterr().err.splitlines() == [
        "sparklag: no answer, waiting: no service\\x1b[2J",
        "sparklag: the service answers again",
    ]


def test_a_first_request_that_fails_is_an_error() -> None:
    with pytest.raises(ServiceError, match="no such query"):
        print_changes(reads(ServiceError("no such query")), 0, lambda _: None)


@pytest.mark.parametrize("option", ["--max-lag", "--max-time-lag"])
def test_a_probe_watches_nothing(option: str) -> None:
    refused = sparklag("lag", "orders", "--watch", option, "5")
    assert refused.returncode == 2
    assert "excludes --max-lag and --max-time-lag" in refused.stderr


@pytest.mark.parametrize("interval", ["0", "nan", "4000"])
@pytest.mark.parametrize("command", [["top"], ["lag", "orders", "--watch"]])
def test_an_interval_has_bounds(command: list[str], interval: str) -> None:
    refused = sparklag(*command, "--interval", interval)
    assert refused.returncode == 2
    assert "--interval" in refused.stderr
    assert "Traceback" not in refused.stderr


async def test_a_pipe_has_a_line_of_json_for_each_change_until_ctrl_c(live: LiveServer) -> None:
    live.show(EVENT)
    arguments = ("lag", "orders", "--watch", "--json", "--interval", "0.5", "--url", live.url)
    process = await asyncio.create_subprocess_exec(
        *command(*arguments), env=environment(), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert json.loads(await process.stdout.readline())["status"] == "OK"
    live.show(STALLED)
    assert json.loads(await process.stdout.readline())["status"] == "STALL"
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 130


def within(event: LagEvent, **limits: Any) -> str | None:
    return objection(event, NOW_MS, **{"max_lag": None, "max_time_lag_s": None, **limits})


SAMPLED = {"time_lag_method": "sampled"}


@pytest.mark.parametrize(
    ("event", "limits", "why"),
    [
        (event_of(partition(0, 65)), {}, None),
        (event_of(partition(0, 65)), {"max_lag": 65}, None),
        (event_of(partition(0, 65)), {"max_lag": 64}, "its lag is 65 records, 64 are allowed"),
        (event_of(partition(0, 5, time_lag_s=30.0, **SAMPLED)), {"max_time_lag_s": 30}, None),
        (
            event_of(partition(0, 5, time_lag_s=30.0, **SAMPLED)),
            {"max_time_lag_s": 29},
            "its time lag is 30 s, 29 s is allowed",
        ),
        (
            event_of(partition(0, 5, time_lag_s=3.0, time_lag_method="floor")),
            {"max_time_lag_s": 60},
            "its time lag is at least 3.0 s, and not known exactly",
        ),
        (
            event_of(partition(0, 5)),
            {"max_time_lag_s": 60},
            "its time lag is not known",
        ),
        (event_of(partition(0, 0)), {"max_time_lag_s": 0, "max_lag": 0}, None),
        (
            event_of(partition(0, 0), partition(1, None)),
            {"max_lag": 10},
            "the lag of 1 partitions is not known",
        ),
        (
            event_of(partition(0, None), reason="no batch yet"),
            {"max_lag": 10},
            "its lag is unknown: no batch yet",
        ),
        (
            event_of(partition(0, 5), status="STOP", reason="it died"),
            {"max_lag": 10},
            "its status is STOP: it died",
        ),
        (event_of(partition(0, None), status="GONE"), {"max_time_lag_s": 10}, "its status is GONE"),
        (event_of(partition(0, 5), status="STOP"), {"max_lag": 10, "any_status": True}, None),
        (event_of(partition(0, 5), status="STOP"), {}, None),
        (event_of(partition(0, 5), status="WARN"), {"max_lag": 10}, None),
        (
            event_of(partition(0, 0), measured_at=NOW_MS - 300_000),
            {"max_lag": 10},
            "its lag is unknown: last measured 5 min ago",
        ),
    ],
)
def test_a_probe_objects_to_what_is_behind_and_to_what_nobody_knows(
    event: LagEvent, limits: dict[str, Any], why: str | None
) -> None:
    assert within(event, **limits) == why
