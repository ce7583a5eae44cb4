"""The command line as a person meets it: processes, exit codes, one line for what is wrong."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import httpx
import pytest
from werkzeug import Response

from sparklag_jobs.broker.child_process import ChildProcess, free_port
from sparklag_schemas import Settings
from sparklag_service import cli
from tests.child_processes import running
from tests.http_server import JSON, HttpServer
from tests.local_kafka import LocalKafka
from tests.messages import QUERY_ID, seen
from tests.processes import ignored_signals, in_background
from tests.schema_registry import SchemaRegistryServer
from tests.second_client import SecondClient
from tests.service.conftest import send, settings_for
from tests.waiting import DEADLINE_S, wait_for

pytestmark = pytest.mark.kafka
SAMPLES = Path(__file__).parents[2] / "samples"


def environment(settings: Settings | None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPARKLAG_")}
    if settings is None:
        return kept
    return kept | {
        "SPARKLAG_BOOTSTRAP_SERVERS": settings.bootstrap_servers or "",
        "SPARKLAG_OFFSETS_TOPIC": settings.offsets_topic,
        "SPARKLAG_LAG_TOPIC": settings.lag_topic,
        "SPARKLAG_GROUP_ID": settings.group_id,
        "SPARKLAG_TOPIC_PARTITIONS": "2",
    }


def sparklag(
    *arguments: str, settings: Settings | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command in this process, which is faster. Its output is no terminal."""
    stdout, stderr = StringIO(), StringIO()
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(sys, "argv", ["sparklag", *arguments])
        patch.setattr(os, "environ", environment(settings) | variables)
        stack.enter_context(redirect_stdout(stdout))
        stack.enter_context(redirect_stderr(stderr))
        with pytest.raises(SystemExit) as end:
            cli.run()
    code = int(end.value.code or 0)
    return subprocess.CompletedProcess(arguments, code, stdout.getvalue(), stderr.getvalue())


def refused(answer: subprocess.CompletedProcess[str]) -> str:
    assert answer.returncode == 2, answer.stderr
    (line,) = answer.stderr.splitlines()
    return line


@contextmanager
def serving(settings: Settings, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [sys.executable, "-m", "sparklag_service", "serve", "--http-port", str(port), *arguments],
        env=environment(settings),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: is_detected(f"{url}/health/live"), "the service answers")
        yield process, url
    finally:
        process.kill()
        process.communicate()


def is_detected(url: str) -> bool:
    try:
        return httpx.get(url, timeout=DEADLINE_S).is_success
    except httpx.HTTPError:
        return False


def becomes_ready(url: str) -> None:
    wait_for(lambda: is_detected(f"{url}/health/ready"), "it is ready")


@pytest.fixture(scope="module")
def settings(kafka: LocalKafka) -> Settings:
    return settings_for(kafka.bootstrap_servers)


@pytest.fixture(scope="module")
def url(settings: Settings, second_client: SecondClient) -> Iterator[str]:
    topic = f"orders-{settings.group_id}"
    second_client.create(topic, 1)
    second_client.produce(topic, [b"x"] * 70)
    with serving(settings) as (process, address):
        becomes_ready(address)
        send(second_client, settings.offsets_topic, seen(topic, {0: 5}, query_id=QUERY_ID))
        wait_for(lambda: is_detected(f"{address}/lag/orders"), "the query is there")
        yield address
        process.terminate()
        assert process.wait(DEADLINE_S) == 0


def test_lag_shows_a_query_and_serves_as_a_probe(url: str) -> None:
    shown = sparklag("lag", "orders", "--url", url)
    assert shown.returncode == 0
    assert "65 records, 65 in the worst partition" in shown.stdout
    assert sparklag("lag", "orders", "--url", url, "--max-lag", "65").returncode == 0
    behind = sparklag("lag", "orders", "--url", url, "--max-lag", "64")
    assert behind.returncode == 1
    assert behind.stderr == "sparklag: orders: its lag is 65 records, 64 are allowed\n"
    too_old = sparklag("lag", "orders", "--url", url, "--max-time-lag", "0", "--json")
    assert too_old.returncode == 1
    assert "its time lag is" in too_old.stderr
    assert json.loads(too_old.stdout)["total_lag"] == 65
    for no_age in ("-1", "nan"):
        assert sparklag("lag", "orders", "--url", url, "--max-time-lag", no_age).returncode == 2


def test_queries_lists_them(url: str) -> None:
    assert "orders" in sparklag("queries", "--url", url).stdout
    (query,) = json.loads(sparklag("queries", "--url", url, "--json").stdout)
    assert query["query_id"] == QUERY_ID
    assert "no query like this" in sparklag("queries", "--url", url, "--topic", "x").stderr


def test_tail_follows_the_events(url: str, settings: Settings) -> None:
    followed = sparklag("tail", "orders", "-n", "1", settings=settings)
    assert followed.returncode == 0, followed.stderr
    assert "lag           65" in followed.stdout
    waiting = f"sparklag: waiting for lag events of query orders on topic {settings.lag_topic} of "
    assert followed.stderr == f"{waiting}{settings.bootstrap_servers}\n"


def test_a_query_is_forgotten(url: str, settings: Settings, second_client: SecondClient) -> None:
    ended = seen("orders", {0: 5}, query_id="ended", query="ended", cause="terminated")
    send(second_client, settings.offsets_topic, ended)
    wait_for(lambda: is_detected(f"{url}/lag/ended"), "the query is there")
    forgotten = sparklag("forget", "ended", "--url", url)
    assert (forgotten.returncode, forgotten.stdout) == (0, "forgotten: ended\n")
    wait_for(
        lambda: httpx.get(f"{url}/lag/ended", timeout=DEADLINE_S).status_code == 404,
        "the query is gone",
    )


def test_topics_are_created_once(kafka: LocalKafka, second_client: SecondClient) -> None:
    settings = settings_for(kafka.bootstrap_servers)
    assert "created" in sparklag("topics", "create", settings=settings).stdout
    assert "already there" in sparklag("topics", "create", settings=settings).stdout
    # The controller has created it; the broker knows it a moment later.
    wait_for(lambda: second_client.partitions(settings.lag_topic) == 2, "it has 2 partitions")


def test_with_avro_the_schemas_are_registered_too_and_check_reports_when_they_are_missing(
    kafka: LocalKafka, registry: SchemaRegistryServer
) -> None:
    settings = settings_for(kafka.bootstrap_servers)
    wanted = {
        "SPARKLAG_FORMAT": "avro",
        "SPARKLAG_REGISTRY__URL": registry.url,
        "SPARKLAG_REGISTRY__TIMEOUT_S": str(DEADLINE_S),
        # The service may not; who creates topics may.
        "SPARKLAG_REGISTRY__REGISTER": "false",
        "SPARKLAG_PARTITION_RECORDS": "true",
        "SPARKLAG_PARTITION_TOPIC": f"{settings.lag_topic}-partitions",
    }
    assert sparklag("topics", "create", settings=settings).returncode == 0
    missing = sparklag("check", settings=settings, **wanted)
    assert missing.returncode == 1
    assert f"  schema registry {registry.url} answers" in missing.stdout
    wrong = f"bad registry the schema of topic {settings.lag_topic} is not registered"
    assert wrong in " ".join(missing.stdout.split())
    created = sparklag("topics", "create", settings=settings, **wanted)
    assert created.returncode == 0, created.stderr
    assert f"{settings.lag_topic}: already there, its schema registered" in created.stdout
    assert f"{settings.lag_topic}-partitions: created, its schema registered" in created.stdout
    assert "schema" not in sparklag("topics", "create", settings=settings, **wanted).stdout
    result = sparklag("check", settings=settings, **wanted)
    assert result.returncode == 0, result.stdout


def test_avro_with_a_registry_that_is_away_is_one_line(kafka: LocalKafka) -> None:
    settings = settings_for(kafka.bootstrap_servers)
    away = f"http://127.0.0.1:{free_port()}"
    variables = {"SPARKLAG_FORMAT": "avro", "SPARKLAG_REGISTRY__URL": away}
    line = refused(sparklag("topics", "create", settings=settings, **variables))
    assert line.startswith(f"sparklag: schema registry {away}: ")


def test_sigterm_drains_commits_and_ends_with_zero(
    kafka: LocalKafka, second_client: SecondClient, topic: str
) -> None:
    settings = settings_for(kafka.bootstrap_servers)
    with serving(settings) as (process, url):
        becomes_ready(url)
        queries = [seen(topic, {0: 0}) for _ in range(50)]
        send(second_client, settings.offsets_topic, *queries)
        wait_for(
            lambda: len(httpx.get(f"{url}/lag", timeout=DEADLINE_S).json()["queries"]) > 0,
            "it works",
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    committed = second_client.committed(settings.group_id, settings.offsets_topic)
    published = {message.key() for message in second_client.read_all(settings.lag_topic)}
    # What was committed was published; what was not is read again by the next one.
    assert sum(committed.values()) <= len(published)


@pytest.mark.parametrize(
    ("arguments", "text", "codes"),
    [
        ("serve --http-port 0", "Started server process", {0}),
        ("tail", "waiting for lag events", {-signal.SIGTERM}),
        ("tail --url {url}", "orders", {-signal.SIGTERM}),
        ("lag orders --watch --url {url}", "orders", {-signal.SIGTERM}),
    ],
)
def test_a_background_job_ignores_ctrl_c_and_ends_at_sigterm(
    settings: Settings, url: str, tmp_path: Path, arguments: str, text: str, codes: set[int]
) -> None:
    command = [sys.executable, "-m", "sparklag_service", *arguments.format(url=url).split()]
    log, env = tmp_path / "log", environment(settings)
    job = ChildProcess("the job", in_background(command), log_path=log, environment=env)
    with running(job):
        wait_for(lambda: job.has_logged(text) or not job.is_alive(), text)
        assert job.is_alive(), job.describe_end()
        assert {signal.SIGINT, signal.SIGHUP} <= ignored_signals(job.pid)
        job.send_signal(signal.SIGTERM)
        assert job.wait(DEADLINE_S), job.log_end()
    assert job.exit_code in codes, job.describe_end()
    assert not job.has_logged("Traceback"), job.log_end()


def test_a_port_in_use_is_one_line(kafka: LocalKafka) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = settings_for(kafka.bootstrap_servers)
        line = refused(sparklag("serve", "--http-port", str(port), settings=settings))
    assert f"port {port} on 127.0.0.1 is in use: choose another with --http-port" in line


def test_without_kafka_it_serves_reports_why_it_is_not_ready_and_waits() -> None:
    with serving(settings_for("127.0.0.1:1")) as (process, url):

        def reports_why() -> bool:
            failing = httpx.get(f"{url}/health/ready", timeout=DEADLINE_S).json()["failing"]
            return "connection refused" in failing.get("topics", "")

        wait_for(reports_why, "it reports the reason")
        process.terminate()
        _, printed = process.communicate(timeout=DEADLINE_S)
    lines = [line for line in printed.splitlines() if "connection refused" in line]
    assert len(lines) == 1
    assert "Kafka at 127.0.0.1:1: 127.0.0.1:1: connection refused" in lines[0]


def test_what_the_service_lacks_is_named_by_the_commands_that_need_it() -> None:
    with serving(settings_for("127.0.0.1:1")) as (_, url):
        away = "topics: Kafka at 127.0.0.1:1: 127.0.0.1:1: connection refused"
        wait_for(lambda: away in sparklag("queries", "--url", url).stderr, "the reason is known")
        for arguments, listed in (((), "query\tquery_id\t"), (("--json",), "[]\n")):
            answer = sparklag("queries", "--url", url, *arguments)
            assert answer.returncode == 2
            assert answer.stdout.startswith(listed)
            assert len(answer.stdout.splitlines()) == 1
            parts = [line.partition(":")[0] for line in answer.stderr.splitlines()]
            assert sorted(parts) == ["intake", "topics", "view"]
            assert answer.stderr.isascii()
            assert "\x1b" not in answer.stderr
        line = refused(sparklag("lag", "orders", "--url", url))
        assert "no query has the name or id 'orders' yet, and the view is not complete" in line
        assert away in line


def test_an_answer_of_another_program_is_one_line() -> None:
    with HttpServer(lambda _: Response('{"queries": 3}', content_type=JSON)) as server:
        line = refused(sparklag("queries", "--url", server.url))
    assert "does not answer like a sparklag service" in line


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["serve"], "setting bootstrap_servers is not set"),
        (["tail", "--bootstrap-servers", "127.0.0.1:1"], "connection refused"),
        (["topics", "create", "--bootstrap-servers", "127.0.0.1:1"], "connection refused"),
        (["lag", "orders", "--url", "http://127.0.0.1:1"], "no service at http://127.0.0.1:1"),
        (["queries", "--url", "nonsense"], "nonsense"),
        (["serve", "--config", "none.toml"], "no settings file at none.toml"),
        (["serve", "--http-port", "99999"], "setting http_port = 99999"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_code_two(arguments: list[str], line: str) -> None:
    assert line in refused(sparklag(*arguments))


def test_an_unknown_query_is_one_line(url: str) -> None:
    assert "no query has the name or id 'x'" in refused(sparklag("lag", "x", "--url", url))
