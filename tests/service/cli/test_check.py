"""`sparklag check`: what it finds, on real parts, and how it shows that."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from werkzeug import Request, Response
from werkzeug.serving import WSGIRequestHandler

from sparklag_jobs.broker.child_process import free_port
from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_schemas import ClusterAccess, Settings
from sparklag_schemas.service_access import ServiceAccess
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.cli.check import check_service
from sparklag_service.cli.check.kafka import check_brokers
from sparklag_service.cli.check.result import clock_result
from tests.http_server import JSON, HttpServer
from tests.local_kafka import LocalKafka
from tests.messages import position, seen
from tests.second_client import SecondClient
from tests.service.cli.test_cli import SAMPLES, becomes_ready, environment, serving, sparklag
from tests.service.conftest import send, settings_for
from tests.service.groups import metadata_of
from tests.terminal import Terminal
from tests.waiting import wait_for

NOWHERE = "http://127.0.0.1:1"
"""No service is there."""

READY = '{"status": "ready", "failing": {}, "degraded": {}, "queries": 0}'

Found = dict[tuple[str, str], list[dict[str, Any]]]


def checked(
    settings: Settings, *arguments: str, url: str = NOWHERE, **variables: str
) -> tuple[int, Found]:
    ended = sparklag("check", "--json", "--url", url, *arguments, settings=settings, **variables)
    outcome: Found = {}
    for result in json.loads(ended.stdout):
        assert result.keys() == {"check", "state", "text", "remedy"}
        assert result["state"] == "ok" or result["remedy"]
        outcome.setdefault((result["check"], result["state"]), []).append(result)
    return ended.returncode, outcome


def texts(outcome: Found, check: str, state: str) -> str:
    return "\n".join(result["text"] for result in outcome.get((check, state), ()))


def observe(client: SecondClient, settings: Settings, **fields: Any) -> None:
    send(client, settings.offsets_topic, seen("orders", {0: 3}, **fields))


@pytest.fixture(scope="module")
def settings(kafka: LocalKafka) -> Settings:
    return settings_for(kafka.bootstrap_servers)


@pytest.fixture(scope="module")
def url(settings: Settings, second_client: SecondClient) -> Iterator[str]:
    with serving(settings) as (_, address):
        becomes_ready(address)
        yield address


@pytest.mark.kafka
def test_where_all_is_well_every_check_reports_so_and_no_record_is_written(
    url: str, settings: Settings, second_client: SecondClient
) -> None:
    observe(second_client, settings)
    before = second_client.end_offsets(settings.offsets_topic)
    exit_code, outcome = checked(settings, url=url)
    assert exit_code == 0
    assert {state for _, state in outcome} == {"ok"}, outcome
    expected = ("versions", "kafka", "topics", "rights", "instances", "drivers", "clock", "service")
    assert [check for check, _ in outcome] == [*expected]
    assert "its view is complete" in texts(outcome, "service", "ok")
    assert "1 instance does all the work" in texts(outcome, "instances", "ok")
    clocks = texts(outcome, "clock", "ok")
    assert "the clock of the service is that of this machine (± 1." in clocks
    versions = texts(outcome, "versions", "ok")
    for part in ("sparklag ", "Python ", "aiokafka ", "ListOffsets ", "drivers write messages of"):
        assert part in versions
    assert second_client.end_offsets(settings.offsets_topic) == before


@pytest.mark.kafka
def test_before_anything_runs_it_reports_what_to_do_and_leaves_nothing_behind(
    kafka: LocalKafka, second_client: SecondClient
) -> None:
    settings = settings_for(kafka.bootstrap_servers)
    for create, code, state in (("true", 0, "note"), ("false", 1, "bad")):
        exit_code, outcome = checked(settings, SPARKLAG_CREATE_TOPICS=create)
        assert exit_code == code
        assert f"topic {settings.lag_topic} is not there" in texts(outcome, "topics", state)
        remedy = outcome["topics", state][0]["remedy"]
        assert ("`sparklag serve` creates it" in remedy) == (state == "note")
        assert "`sparklag topics create`" in remedy
    assert "created" in sparklag("topics", "create", settings=settings).stdout
    exit_code, outcome = checked(settings)
    assert exit_code == 0
    assert f"no service answers at {NOWHERE}" in texts(outcome, "service", "note")
    assert "no instance runs" in texts(outcome, "instances", "note")
    assert "no driver has reported" in texts(outcome, "drivers", "note")
    for topic in (settings.offsets_topic, settings.lag_topic):
        assert not any(second_client.end_offsets(topic).values())
    assert asyncio.run(metadata_of(kafka.bootstrap_servers, settings.group_id)) == {}


@pytest.mark.kafka
def test_a_reader_of_own_topics_is_named(kafka: LocalKafka, second_client: SecondClient) -> None:
    settings = settings_for(kafka.bootstrap_servers)
    assert "created" in sparklag("topics", "create", settings=settings).stdout
    read = position({"orders": {0: 1}, settings.offsets_topic: {0: 2}}, topic_pattern=".*")
    meant = position({settings.offsets_topic: {0: 2}}, topic_pattern="processed.*")
    for query_id, name, source in (("loop", "everything", read), ("audit", "audit", meant)):
        observe(second_client, settings, query_id=query_id, query=name, sources=[source])
    exit_code, outcome = checked(settings)
    assert exit_code == 1
    bad = texts(outcome, "drivers", "bad")
    assert bad == f"query everything also reads {settings.offsets_topic}"


@pytest.mark.kafka
def test_a_drivers_clock_that_is_ahead_and_a_message_of_another_version_are_named(
    kafka: LocalKafka, second_client: SecondClient
) -> None:
    settings = settings_for(kafka.bootstrap_servers)
    assert "created" in sparklag("topics", "create", settings=settings).stdout
    observe(second_client, settings, query="early", observed_at=epoch_ms() + 200_000)
    observe(second_client, settings, query="newer", schema_version="1.99")
    exit_code, outcome = checked(settings)
    assert exit_code == 1
    assert "the clock of the driver of early is at least 1" in texts(outcome, "clock", "bad")
    assert "messages of version 1.99" in texts(outcome, "versions", "note")


@pytest.mark.kafka
def test_checkpoints_to_be_watched_are_read(settings: Settings, url: str, tmp_path: Path) -> None:
    there, missing = SAMPLES / "checkpoints" / "single_kafka", tmp_path / "missing"
    locations = {"SPARKLAG_CHECKPOINTS__LOCATIONS": f"{there},{missing}"}
    exit_code, outcome = checked(settings, **locations)
    assert exit_code == 1
    assert texts(outcome, "checkpoints", "ok") == f"may read checkpoints {there}"
    assert f"{missing}: there is no checkpoint here" in texts(outcome, "checkpoints", "bad")


@pytest.mark.kafka
def test_an_instance_without_work_is_named(kafka: LocalKafka, second_client: SecondClient) -> None:
    settings = settings_for(kafka.bootstrap_servers)
    for topic in (settings.offsets_topic, settings.lag_topic):
        second_client.create(topic, 1)
    with serving(settings), serving(settings):
        outcome: Found = {}

        def idles() -> bool:
            nonlocal outcome
            outcome = checked(settings)[1]
            return "1 of 2 instances have no partition" in texts(outcome, "instances", "note")

        wait_for(idles, "one of both has no partition")


@pytest.mark.kafka
async def test_a_broker_that_is_not_at_its_advertised_address_is_named(kafka: LocalKafka) -> None:
    async with BrokerPool(ClusterAccess(kafka.bootstrap_servers)) as pool:
        await pool.refresh()
        port = free_port()
        pool.brokers = {**pool.brokers, 99: ("127.0.0.1", port)}
        unreached, versions = await check_brokers(pool)
    assert unreached.text.startswith(f"broker 99 at 127.0.0.1:{port}: ")
    assert "advertised.listeners" in (unreached.remedy or "")
    assert (unreached.state, versions.state) == ("bad", "ok")


def not_ready(_: Request) -> Response:
    body = {
        "status": "not ready",
        "failing": {"view": "reads the topic"},
        "degraded": {"east": "no broker answers"},
        "queries": 0,
    }
    return Response(json.dumps(body), 503, content_type=JSON)


@pytest.mark.kafka
def test_a_service_that_is_not_ready_its_clock_and_its_version_are_named(
    settings: Settings, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its machine is years behind.
    old = "Sun, 06 Nov 1994 08:49:37 GMT"
    monkeypatch.setattr(WSGIRequestHandler, "date_time_string", lambda *_: old)
    with HttpServer(not_ready) as server:
        exit_code, outcome = checked(settings, url=server.url)
    assert exit_code == 1
    assert "is not ready: view: reads the topic" in texts(outcome, "service", "bad")
    assert texts(outcome, "service", "note") == "east: no broker answers"
    assert "s behind this machine's" in texts(outcome, "clock", "bad")
    assert "has an older version" in texts(outcome, "versions", "note")
    with HttpServer(lambda _: Response("<p>hello</p>", content_type="text/html")) as server:
        exit_code, outcome = checked(settings, url=server.url)
    assert exit_code == 0
    assert "is no sparklag service" in texts(outcome, "service", "note")


async def test_a_date_that_cannot_be_read_is_passed_over() -> None:
    # The server adds a header of its own.
    second = {"date": "Sun, 06 Nov 1994 08:49:37 GMT"}
    with HttpServer(lambda _: Response(READY, headers=second)) as server:
        results = await check_service(ServiceAccess(server.url))
    assert {result.check for result in results} == {"service", "versions"}


def test_in_a_pipe_each_result_is_a_line_with_what_to_do() -> None:
    ended = sparklag("check", "--bootstrap-servers", "127.0.0.1:1", "--url", NOWHERE)
    assert ended.returncode == 1
    rows = ended.stdout.splitlines()
    assert all(row == row.rstrip() for row in rows)
    assert [row.split()[:2] for row in rows] == [
        ["ok", "versions"],
        ["bad", "kafka"],
        ["note", "service"],
    ]
    assert rows[1].endswith(
        "  Kafka: 127.0.0.1:1: connection refused: is a broker listening there?;"
        " set bootstrap_servers and [kafka] as other clients of that Kafka have it"
    )


@pytest.mark.kafka
def test_it_is_read_in_80_columns(kafka: LocalKafka, tmp_path: Path) -> None:
    settings = settings_for(kafka.bootstrap_servers)
    missing = {"SPARKLAG_CHECKPOINTS__LOCATIONS": str(tmp_path), "SPARKLAG_URL": NOWHERE}
    command = [sys.executable, "-m", "sparklag_service", "check"]
    with Terminal(command, 80, 60, environment(settings) | missing) as terminal:
        assert terminal.exit_code() == 1
        shown = terminal.screen()
    lines = [line for line in shown.splitlines() if line]
    bad = [line.split()[1] for line in lines if line.startswith("bad ")]
    assert bad == ["checkpoints"]
    # A terminal wraps between words, and has what to do below what is wrong.
    (at,) = (at for at, line in enumerate(lines) if "no service answers" in line)
    assert lines[at + 1].split()[:2] == ["`sparklag", "serve`"]


@pytest.mark.parametrize(
    ("ahead_s", "accuracy_s", "state"),
    [(0.0, 0.0, "ok"), (1.9, 0.0, "ok"), (-2.1, 0.0, "bad"), (2.4, 0.5, "ok"), (60, 0.5, "bad")],
)
def test_a_clock_is_wrong_beyond_accuracy(ahead_s: float, accuracy_s: float, state: str) -> None:
    assert clock_result("it", ahead_s, accuracy_s).state == state
