"""However a driver ends, it ends soon, as it would have, and its last position is on the topic."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.listener.driver_process import driver
from tests.second_client import SecondClient

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.mark.parametrize(
    ("ending", "exit_code"),
    [
        ("returns", 0),
        ("stops_spark_and_exits_with_3", 3),
        pytest.param("stops_spark_then_closes", 0, marks=pytest.mark.slow),
        # The last events are on their way to the listener when the driver ends.
        pytest.param(
            *("returns_where_no_thread_can_be_started_any_more", 0), marks=pytest.mark.slow
        ),
    ],
)
def test_it_ends_by_itself(
    second_client: SecondClient, ending: str, exit_code: int, tmp_path: Path
) -> None:
    with driver(second_client, ending, tmp_path) as process:
        process.says("read all")
        assert process.ends() == exit_code, process.output()
        assert process.last().cause == "terminated"
        process.made_no_noise()


def test_it_ends_by_an_exception(second_client: SecondClient, tmp_path: Path) -> None:
    with driver(second_client, "raises", tmp_path) as process:
        process.says("read all")
        assert process.ends() == 1
        assert process.lines[-1] == "ValueError: the driver failed"
        process.last()
        process.made_no_noise()


def test_it_ends_by_sigterm(second_client: SecondClient, tmp_path: Path) -> None:
    with driver(second_client, "waits_for_sigterm", tmp_path) as process:
        process.says("read all")
        process.terminate()
        assert process.ends() == -signal.SIGTERM
        process.last()
        process.made_no_noise()


@pytest.mark.slow
def test_it_ends_by_a_sigterm_handler_of_its_own(
    second_client: SecondClient, tmp_path: Path
) -> None:
    ending = "waits_for_sigterm_with_a_handler_of_its_own"
    with driver(second_client, ending, tmp_path) as process:
        process.says("read all")
        process.terminate()
        assert process.ends() == 0, process.output()
        process.last()


def test_its_forks_end_as_they_would_and_it_goes_on(
    second_client: SecondClient, tmp_path: Path
) -> None:
    with driver(second_client, "forks", tmp_path) as process:
        process.says("read all")
        assert process.ends() == 0, process.output()
        assert "child returned: 0" in process.lines
        assert f"child was terminated: {-signal.SIGTERM}" in process.lines
        process.last()
        process.made_no_noise()


def test_where_kafka_is_away_it_ends_all_the_same_and_says_what_is_lost(
    second_client: SecondClient, tmp_path: Path
) -> None:
    with driver(second_client, "returns", tmp_path, servers="127.0.0.1:9") as process:
        process.says("read all")
        assert process.ends() == 0, process.output()
        ours = process.noise()
        assert len(ours) == 2, process.output()
        assert "cannot publish" in ours[0]
        assert "connection refused" in ours[0]
        assert "not published" in ours[1]
        assert "was destroyed" not in process.output()
