"""The history's tables: what is kept of each event, and what it is rolled up to."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sparklag_jobs.broker.child_process import ChildProcess
from sparklag_jobs.history.tables import FORMATS
from tests.child_processes import run_to_end
from tests.jobs import history_cases as cases
from tests.local_kafka import LocalKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

PROGRAM = "tests.jobs.history_session"
WITH_NEW_FIELDS = "tests.jobs.history_new_fields"


class _Session:
    def __init__(self, servers: str, folder: Path) -> None:
        self.folder = folder
        self._servers = servers
        self.log = self.run(PROGRAM)
        self.output: dict[str, Any] = json.loads((folder / "output.json").read_text())

    def run(self, program: str) -> str:
        child = ChildProcess(
            "the session",
            [sys.executable, "-m", program, self._servers, str(self.folder)],
            log_path=self.folder / f"{program}.log",
            environment={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
        return run_to_end(child, 500)


@pytest.fixture(scope="module")
def session(kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> _Session:
    """Everything at once: a session takes long to start."""
    return _Session(kafka.bootstrap_servers, tmp_path_factory.mktemp("history"))


def test_a_value_that_is_no_lag_event_is_known_with_its_reason(session: _Session) -> None:
    result = {row["offset"]: row["unreadable"] for row in session.output["values"]["unreadable"]}
    expected = {
        offset: why for offset, (value, why) in enumerate(cases.VALUES) if value is not None
    }
    assert result == expected


def test_an_event_has_a_row_for_each_partition_or_one_and_a_first_row(session: _Session) -> None:
    rows = session.output["values"]["rows"]

    places = [(row["event_id"], row["source"], row["topic"], row["partition"]) for row in rows]
    assert sorted(places, key=str) == sorted(
        [
            ("wide", 0, "empty", None),
            ("wide", 1, "clicks", 0),
            ("wide", 1, "clicks", 7),
            ("bare", None, None, None),
            ("newer", 0, "orders", 0),
            ("in avro", 0, "orders", 0),
        ],
        key=str,
    )
    first_of = Counter(row["event_id"] for row in rows if row["first"])
    assert first_of == dict.fromkeys(("wide", "bare", "newer", "in avro"), 1)
    (lossy,) = (row for row in rows if row["partition"] == 0 and row["topic"] == "clicks")
    assert (lossy["lag"], lossy["lost_records"], lossy["status"]) == (3, 2, "DATA_LOSS")
    assert (lossy["processed_offset"], lossy["time_lag_s"]) == (None, None)
    # The fields of the event are stored once.
    assert (lossy["event_status"], lossy["total_lag"], lossy["day"]) == (None, None, "2026-09-21")
    (first,) = (row for row in rows if row["first"] and row["event_id"] == "wide")
    assert (first["event_status"], first["total_lag"], first["within_target"]) == ("OK", 65, True)


def test_a_row_is_the_same_from_avro_as_from_json(session: _Session) -> None:
    newer, in_avro = (
        next(row for row in session.output["values"]["rows"] if row["event_id"] == event_id)
        for event_id in ("newer", "in avro")
    )
    assert in_avro == {**newer, "event_id": "in avro"}


def test_an_unknown_schema_fails_with_its_id(session: _Session) -> None:
    assert "sparklag: unknown schema id 4000000000" in session.output["unknown_schema"]


def test_targets_are_the_thresholds_of_the_settings_or_the_status(session: _Session) -> None:
    result = {row["event_id"]: row["within_target"] for row in session.output["targets"]}
    assert result == {event.event_id: expected for event, expected in cases.TARGETS}


def test_a_pattern_that_only_python_takes_is_refused_at_the_start(session: _Session) -> None:
    assert session.output["refused"].startswith(
        "thresholds.'(?P<name>x)' is not a regular expression that Spark (Java) takes: "
    )


def test_a_roll_up_weighs_by_time_and_counts_what_came(session: _Session) -> None:
    result = {(row["query_id"], row["start_ms"]): row for row in session.output["rolled"]}
    expected = cases.expected_rows()
    assert result.keys() == expected.keys()
    for key, row in expected.items():
        got = {name: result[key][name] for name in row}
        assert got == {
            name: pytest.approx(value) if value is not None else None for name, value in row.items()
        }, key


def test_each_format_keeps_every_event_and_rolls_up_every_window_once(session: _Session) -> None:
    assert session.output["formats"].keys() == set(FORMATS)
    for output in session.output["formats"].values():
        _every_event_and_window_is_there_once(*output["after"])


def _every_event_and_window_is_there_once(first: dict[str, Any], second: dict[str, Any]) -> None:
    before, after = (
        Counter(row["event_id"] for row in tables["partitions"]) for tables in (first, second)
    )
    part, more = ([event.event_id for event in part] for part in cases.PARTS)
    assert before == Counter(part)
    assert after == Counter([*part, *more])
    assert {row["day"] for row in second["partitions"]} == {"2026-09-21", "2026-09-22"}

    minutes = Counter((row["query_id"], row["start_ms"]) for row in second["minutes"])
    assert set(minutes.values()) == {1}
    begin_ms = cases.MIDNIGHT_MS - 5 * cases.STEP_MS
    # The newest event is 10 s before the end; a minute of lateness, and the minute it is in.
    assert {at for query, at in minutes if query == "id-a"} == {
        begin_ms + number * cases.STEP_MS for number in range(13)
    }
    assert all(row["events"] == 6 for row in second["minutes"] if row["query_id"] == "id-a")
    assert Counter(row["start_ms"] for row in second["hours"]) == {cases.MIDNIGHT_MS - 3_600_000: 2}


def test_what_came_too_late_is_kept_is_in_no_roll_up_and_is_reported(session: _Session) -> None:
    for output in session.output["formats"].values():
        _, second = output["after"]
        assert cases.LATE.event_id in {row["event_id"] for row in second["partitions"]}
        assert "id-late" not in {row["query_id"] for row in second["minutes"]}
    assert session.log.count("events came too late for 1 windows or more") >= len(FORMATS)


def test_a_new_field_of_a_message_is_a_column_of_existing_tables(session: _Session) -> None:
    session.run(WITH_NEW_FIELDS)
    tables = json.loads((session.folder / "new_fields.json").read_text())
    assert tables.keys() == set(FORMATS)
    for rows in tables.values():
        new = {row["partition"]: row for row in rows if row["event_id"] == "with new fields"}
        assert (new[0]["retries"], new[0]["labels"]) == (7, {"team": "billing"})
        assert (new[1]["retries"], new[1]["labels"]) == (None, None)  # of the event: once
        assert [new[at]["owner"] for at in (0, 1)] == ["billing"] * 2
        assert [new[at]["replicas"] for at in (0, 1)] == [3, None]
        older = [row for row in rows if row["event_id"] != "with new fields"]
        assert older
        assert all(row["retries"] is row["replicas"] is None for row in older)
