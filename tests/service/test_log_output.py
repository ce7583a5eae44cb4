"""The log of `sparklag serve`, as a program reads it, and as a person does."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from sparklag_jobs.broker.child_process import ChildProcess
from sparklag_schemas import Settings, SettingsError, encode, load_settings
from sparklag_schemas.messages.topics import key_of
from sparklag_schemas.settings.settings import LOG_PACKAGES, LOG_STAGES
from sparklag_schemas.timestamps import epoch_ms
from tests.child_processes import running
from tests.commands import run
from tests.local_kafka import LocalKafka
from tests.messages import seen
from tests.second_client import SecondClient
from tests.service.cli.test_cli import environment
from tests.service.conftest import settings_for
from tests.terminal import Terminal
from tests.test_layering import AFTER_VIEW, PACKAGES, STAGES
from tests.waiting import DEADLINE_S, wait_for

COMMAND = [sys.executable, "-m", "sparklag_service", "serve", "--http-port", "0"]


@contextmanager
def serving(log: Path, settings: Settings, **variables: str) -> Iterator[ChildProcess]:
    env = environment(settings) | variables
    with running(ChildProcess("the service", COMMAND, log_path=log, environment=env)) as process:
        yield process


def lines(log: Path) -> list[dict[str, Any]]:
    """Of a log in JSON. The last may not be written in full yet."""
    whole = log.read_text().rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def about_queries(log: Path) -> list[dict[str, Any]]:
    return [line for line in lines(log) if "query_id" in line]


@pytest.mark.kafka
def test_each_line_of_a_run_is_one_json_object_and_those_about_a_query_name_it(
    kafka: LocalKafka, second_client: SecondClient, tmp_path: Path, topic: str
) -> None:
    settings, log = settings_for(kafka.bootstrap_servers), tmp_path / "log"
    second_client.create(settings.offsets_topic, 2)
    # No lag event fits.
    second_client.create(settings.lag_topic, 2, **{"max.message.bytes": "200"})
    with serving(log, settings) as process:
        observed = seen(topic, {0: 0}, observed_at=epoch_ms())
        for key, value in ((observed.query_id, encode(observed)), ("other", b"{}")):
            second_client.produce(settings.offsets_topic, [value], key=key_of(key))
        wait_for(lambda: len(about_queries(log)) >= 2, "both are logged")
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S)
        assert process.exit_code in (0, 130)
    result = lines(log)
    assert log.read_text().endswith("\n")
    for line in result:
        assert {"timestamp", "level", "logger", "event"} <= line.keys()
        at = datetime.fromisoformat(line["timestamp"].replace("Z", "+00:00"))
        assert abs((datetime.now(timezone.utc) - at).total_seconds()) < DEADLINE_S
    assert any(line["event"].startswith("serving http://") for line in result)
    by_query = {line["query_id"]: line for line in about_queries(log)}
    refused, dropped = by_query["other"], by_query[observed.query_id]
    assert refused["event"].startswith("refused a message at ")
    assert (refused["query"], refused["cause"]) == (None, None)
    assert (dropped["query"], dropped["cause"]) == (observed.query, observed.cause)
    assert "cannot be published" in dropped["event"]
    assert dropped["reason"] in dropped["event"]


@pytest.mark.kafka
def test_a_repeated_line_is_limited_and_counted(kafka: LocalKafka, tmp_path: Path) -> None:
    settings, log = settings_for(kafka.bootstrap_servers), tmp_path / "log"
    with serving(log, settings) as process:
        wait_for(lambda: "serving http://" in log.read_text(), "it serves")
        address = re.search(r"serving http://([\d.]+):(\d+)", log.read_text())
        assert address is not None
        for _ in range(30):
            with socket.create_connection((address[1], int(address[2])), DEADLINE_S) as connection:
                connection.sendall(b"no HTTP at all\r\n\r\n")
                while connection.recv(1_000):
                    pass
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE_S)
    message = [line for line in lines(log) if "Invalid HTTP request" in line["event"]]
    *first, last = message
    assert len(first) == 5
    assert last["event"] == "… 25 more like this: Invalid HTTP request received."
    assert last["repeated"] == 25


@pytest.mark.kafka
def test_a_part_has_a_level_of_its_own(kafka: LocalKafka, tmp_path: Path) -> None:
    settings, log = settings_for(kafka.bootstrap_servers), tmp_path / "log"
    levels = {"SPARKLAG_LOG_LEVELS__SERVICE": "ERROR", "SPARKLAG_LOG_LEVELS__INTAKES": "INFO"}
    with serving(log, settings, **levels):
        wait_for(lambda: "owns 2 of 2" in log.read_text(), "the intake's line")
        loggers = {line["logger"] for line in lines(log)}
    assert "sparklag_service.intakes.topic" in loggers
    # It has logged where it serves, and that it has created its topics.
    ours = {name for name in loggers if name.startswith("sparklag")}
    assert ours == {"sparklag_service.intakes.topic"}


@pytest.mark.kafka
def test_on_a_terminal_lines_are_to_be_read(kafka: LocalKafka) -> None:
    with Terminal(COMMAND, 200, 30, environment(settings_for(kafka.bootstrap_servers))) as terminal:
        wait_for(lambda: "owns 2 of 2 partitions" in terminal.screen(), "it has joined")
        shown = terminal.screen()
    assert "INFO    sparklag_service.server: serving http://" in shown
    assert "{" not in shown


def test_an_uncaught_error_is_one_line_with_its_trace() -> None:
    program = (
        "from sparklag_schemas import Settings\n"
        "from sparklag_schemas.runtime.log_output import configure_logs\n"
        "import warnings\n"
        "configure_logs(Settings())\n"
        "warnings.warn('deprecated')\n"
        "raise ValueError('two\\nlines')\n"
    )
    ended = run(sys.executable, "-c", program)
    assert ended.returncode == 1
    warning, error = (json.loads(line) for line in ended.stderr.splitlines())
    assert "deprecated" in warning["event"]
    assert error["exception"].endswith("ValueError: two\nlines")
    assert error["exception"].startswith("Traceback")


def test_the_parts_are_the_packages_and_the_stages() -> None:
    stages = (*STAGES, *AFTER_VIEW, "recording")
    assert tuple(stage for stage in stages if stage != "cli") == LOG_STAGES
    packages = {name.removeprefix("sparklag_") for name in PACKAGES}
    assert {*LOG_PACKAGES} == packages - {"listener", "jobs"}


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"LOG_LEVELS__KAFAK": "DEBUG"}, "log_levels.'kafak' is no part: takes schemas, kafka, "),
        ({"LOG_LEVELS__KAFKA": "LOUD"}, "log_levels.kafka = 'LOUD': takes "),
        ({"LOG_FORMAT": "xml"}, "log_format = 'xml': takes "),
    ],
)
def test_a_wrong_part_level_or_format_is_one_line(variables: dict[str, str], line: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(environ={f"SPARKLAG_{name}": value for name, value in variables.items()})
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)
