"""Every block of code in the documents is run as a reader runs it, or named with a reason.

All run in one folder, against one broker and one service. `Place` replaces the
addresses and folders that the pages name.
"""

from __future__ import annotations

import ast
import asyncio
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import tomli
import yaml

from scripts.helm import CHART, run_helm
from scripts.helm import program as helm_program
from sparklag_jobs.broker.child_process import ChildProcess
from sparklag_jobs.broker.maven import find_java, kafka_jars
from sparklag_listener import LagUnavailable, QueryNotFound
from sparklag_listener.observe import newest_handle
from sparklag_offsets.store import open_store
from sparklag_offsets.store.batch_record import TopicRanges, encode_ranges
from sparklag_schemas import LagEvent, Observation, PartitionRecord, encode, load_settings
from sparklag_schemas.messages.topics import key_of
from sparklag_schemas.timestamps import epoch_ms
from tests.child_processes import running
from tests.debian_packages import library_path, unpacked_packages
from tests.document_blocks import ROOT, Item, items
from tests.end_to_end import answer
from tests.listener.drivers import build_session, read_kafka, start_query
from tests.local_kafka import LocalKafka
from tests.messages import QUERY_ID, lag_event
from tests.offsets.store.batches import record
from tests.second_client import SecondClient
from tests.service.mirror.consumer_groups import kafka_tools
from tests.spark_configuration import PROPERTIES
from tests.terminal import Terminal
from tests.test_documents import passwords
from tests.waiting import DEADLINE_S, wait_for
from tests.web.reported_query import ReportedQuery

SHARE: Final = 0.95
_ALL: Final = items()
_ENDLESS: Final = {
    r"^sparklag serve": "serving http",
    r"^sparklag tail": "orders",
    r"^curl -N": "data:",
    r"^sparklag lag .*--watch": "\n",
}
"""Commands that run until they are interrupted, and what each has written by then."""
_IN_A_TERMINAL: Final = {"sparklag queries"}
"""A pipe gets something else."""
_TOOLS: Final = {
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-configs.sh": "org.apache.kafka.tools.ConfigCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
}
"""Kafka's own programs, which its jars have without their scripts."""
_FILES: Final = {
    "password.txt": "a password",
    "ca.crt": "a certificate",
    "admin.properties": "",
    "values.yaml": "settings: {bootstrap_servers: kafka:9092, http_auth: none}",
}
_READERS_TOOLS: Final = {"column": "bsdextrautils", "curl": "curl", "jq": "jq"}
"""Programs of the pages, and their packages in Debian."""
_PYTHON: Final = shlex.quote(sys.executable)
_COMMAND_S: Final = 600.0
"""`sparklag history run` is three Spark queries, one after the other."""
_EARLY_MS: Final = 1_763_000_000_000  # before every time that a page names


def _each(language: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "item", [i for i in _ALL if i.language == language and i.is_run_here], ids=str
    )


@dataclass(frozen=True)
class Place:
    folder: Path
    kafka: LocalKafka
    client: SecondClient
    url: str

    def substituted(self, code: str) -> str:
        for name, here in {
            r"broker(-\d)?:9092|localhost:9092": self.kafka.bootstrap_servers,
            r"http://(sparklag|127\.0\.0\.1|localhost):8085": self.url,
            r"(?<![/\w])(sparklag|localhost):8085": self.url,
            r"http://lag\.internal": self.url,
            r"s3a?://bucket/|/mnt/": f"{self.folder}/",
            r"postgresql\+psycopg://user@host/database": f"sqlite:///{self.folder}/results.db",
            r"(?<!/)\bpip install ": f"{_PYTHON} -m pip install --dry-run --no-index -q ",
            r"\bQUERY\b|\bTOPIC\b": "orders",
            r"\bhistory run\b": "history run --once",
            # There is no cluster.
            r"\bhelm (?:install|upgrade) (.*?)( --create-namespace|$)": r"helm template \1",
            r"\bkubectl\b(.*)": r"kubectl\1 --dry-run=client --output=yaml",
        }.items():
            code = re.sub(name, here, code)
        return code

    @property
    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("SPARKLAG_")}
        path = f"{self.folder}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return kept | {
            "PATH": path,
            # What `pip` of an environment of the reader's installs: our wheel.
            "PIP_NO_INDEX": "1",
            "PIP_NO_DEPS": "1",
            "PIP_FIND_LINKS": str(self.folder / "wheels"),
            # Of what spark-submit starts.
            "SPARK_CONF_DIR": str(PROPERTIES.parent),
            "SPARKLAG_LOG_FORMAT": "console",
            "TERM": "xterm-256color",
            "COLUMNS": "100",
            "SPARKLAG_BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
            "SPARKLAG_URL": self.url,
            "SPARKLAG_HTTP_PORT": "0",
            "SPARKLAG_GROUP_ID": "of-a-page",
            "SPARKLAG_STORE__URL": f"sqlite:///{self.folder}/offsets.db",
            # The pages name times that are long ago.
            "SPARKLAG_STORE__KEEP_S": "1e9",
        }


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("reader")
    (folder / "bin").mkdir()
    path = f"{kafka_jars()[0].parent}/*:{kafka_tools()[0].parent}/*"
    for name, main in _TOOLS.items():
        java = shlex.join([str(find_java()), "-Xmx128m", "-cp", path])
        script = f'#!/bin/sh\nexec {java} {main} "$@"\n'
        _program(folder, name, script)
    unpacked, missing = readers_tools()
    for tool in missing:
        libraries, program = shlex.quote(library_path(unpacked)), unpacked / "usr" / "bin" / tool
        script = f'LD_LIBRARY_PATH={libraries} exec {shlex.quote(str(program))} "$@"'
        _program(folder, tool, f"#!/bin/sh\n{script}\n")
    for name in ("helm", "kubectl"):
        (folder / "bin" / name).symlink_to(helm_program(name))
    (folder / "deploy").symlink_to(ROOT / "deploy")
    for name, text in _FILES.items():
        (folder / name).write_text(text)
    build = ("-m", "hatchling", "build", "-t", "wheel", "-d", folder / "wheels")
    subprocess.run([sys.executable, *build], cwd=ROOT, check=True, capture_output=True)
    _program(folder, "sparklag", f'#!/bin/sh\nexec {_PYTHON} -m sparklag_service "$@"\n')
    # ACLs can be written: whoever connects is the super user.
    acls = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with LocalKafka(properties=acls) as kafka:
        client = SecondClient(kafka.bootstrap_servers)
        client.create("orders", 2)
        client.produce("orders", [b"%d" % number for number in range(200)])
        unserved = Place(folder, kafka, client, "")
        command = ["sparklag", "serve", "--bootstrap-servers", kafka.bootstrap_servers]
        environment = unserved.environment | {"SPARKLAG_GROUP_ID": "sparklag"}
        log = folder / "service.log"
        with running(_child(command, unserved, log, environment)) as service:
            wait_for(lambda: service.has_logged("serving http"), "the service serves", DEADLINE_S)
            url = log.read_text().partition("serving ")[2].split()[0]
            served = Place(folder, kafka, client, url)
            _report_queries(served)
            yield served


def readers_tools() -> tuple[Path, list[str]]:
    missing = {name: package for name, package in _READERS_TOOLS.items() if not shutil.which(name)}
    packages = sorted(missing.values())
    if not packages:
        return ROOT, []
    unpacked = unpacked_packages(
        f"tools-of-pages-{'-'.join(packages)}",
        packages,
        needs="lib.*",
        instead=f"install {', '.join(packages)}",
    )
    return unpacked, list(missing)


def _program(folder: Path, name: str, text: str) -> None:
    (folder / "bin" / name).write_text(text)
    (folder / "bin" / name).chmod(0o755)


def _child(
    command: Sequence[str], place: Place, log: Path, environment: Mapping[str, str]
) -> ChildProcess:
    return ChildProcess(
        command[-1], command, log_path=log, environment=environment, directory=place.folder
    )


def _report_queries(place: Place) -> None:
    """`orders`, which is behind, with its batches in the store; `orders-v2`, which is not."""
    query = ReportedQuery(place.client, "processed-offsets", "orders", "orders")
    other = ReportedQuery(place.client, "processed-offsets", "orders", "payments-eu")
    other.complete_batch(1, 1)
    _fill_store(place.folder, place.kafka.bootstrap_servers, query.id)
    _publish_past(place)
    for batch in range(4):
        query.complete_batch(10 + batch, 10 + batch)
        place.client.produce("orders", [b"more"] * 20)
        wait_for(partial(_is_measured, place, batch), "the batch is measured", DEADLINE_S)
    checkpoint = place.folder / "checkpoints" / "orders"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "commits").mkdir()
    (checkpoint / "metadata").write_text(f'{{"id":"{QUERY_ID}"}}')
    (checkpoint / "offsets" / "0").write_text('v1\n{}\n{"orders":{"0":20,"1":20}}')
    (checkpoint / "commits" / "0").write_text("v1\n{}")


def _is_measured(place: Place, batch: int) -> bool:
    return (answer(f"{place.url}/lag/orders") or {}).get("batch_id") == batch


def _publish_past(place: Place) -> None:
    """Lag of hours ago, which the history rolls up: of a query that has ended."""
    for minutes in range(180, 120, -10):
        at = epoch_ms() - minutes * 60_000
        times = dict.fromkeys(("processed_at", "observed_at", "measured_at"), at)
        event = lag_event(event_id=str(minutes), status="FINISHED", **times)
        place.client.produce("consumer-lag", [encode(event)], key=key_of(QUERY_ID))


def _fill_store(folder: Path, servers: str, query_id: str) -> None:
    def batch(number: int, at_ms: int, **fields: Any) -> Any:
        ranges: list[tuple[int, int | None, int]] = [
            (partition, 10 * number, 10 * number + 10) for partition in (0, 1)
        ]
        topics = [TopicRanges(0, "orders", None, servers, ranges)]
        times = {"processed_at": at_ms, "observed_at": at_ms}
        return record(number, ranges=encode_ranges(topics), **times, **fields)

    other = {"query_id": str(uuid.uuid4()), "query": "orders-v2"}

    async def fill() -> None:
        store = open_store(f"sqlite:///{folder}/offsets.db", create=True)
        await store.prepare()
        await store.write([batch(0, _EARLY_MS, query_id=query_id)])
        await store.write([batch(0, _EARLY_MS, **other), batch(1, epoch_ms(), **other)])
        await store.aclose()

    asyncio.run(fill())


@pytest.mark.kafka
@pytest.mark.slow
@_each("shell")
def test_a_command_writes_what_the_page_shows(item: Item, place: Place, tmp_path: Path) -> None:
    command = place.substituted(re.sub(r" &$", "", re.sub(r"\s+# .*$", "", item.code)))
    awaited = next((text for start, text in _ENDLESS.items() if re.search(start, item.code)), None)
    if item.code in _IN_A_TERMINAL or item.code.startswith("sparklag top"):
        shown = place.environment | {"COLUMNS": "60"}
        with Terminal(["bash", "-c", command], 60, 40, shown) as terminal:
            text = terminal.shows("orders")
        assert _first_words(item.output) <= _first_words(text), text
        return
    log = tmp_path / "output"
    with running(_child(["bash", "-c", command], place, log, place.environment)) as process:
        if awaited:
            wait_for(lambda: process.has_logged(awaited), awaited, DEADLINE_S)
            os.killpg(process.pid, signal.SIGINT)
        assert process.wait(_COMMAND_S), process.log_end()
    text = log.read_text(errors="replace")
    assert awaited or process.exit_code == 0, process.describe_end()
    assert "does not provide the extra" not in text
    missing = _first_words(item.output) - _first_words(text)
    assert not missing, f"the page shows {missing}, the command wrote:\n{text}"


def _first_words(output: str) -> set[str]:
    """Of the lines: labels, which stay the same when figures change."""
    words = {line.split()[0] for line in output.splitlines() if line[:1].strip()}
    return {word for word in words if not re.search(r"[…\d]", word)}


@_each("json")
def test_a_message_is_read_as_its_type(item: Item) -> None:
    whole = item.code.replace(", …}", "}")
    name = Path(item.page).stem.replace("-", "_")
    kinds = {
        "logs": dict[str, str | None],
        "lag_event": LagEvent,
        "observation": Observation,
        "partition_record": PartitionRecord,
    }
    msgspec.json.decode(whole, type=kinds[name])


@_each("toml")
def test_settings_are_loaded(item: Item, tmp_path: Path) -> None:
    config = tmp_path / "sparklag.toml"
    config.write_text(item.code, encoding="utf-8")
    secrets = passwords(tomli.loads(item.code))
    load_settings(config=config, environ={"SPARKLAG_SECRETS_DIR": str(tmp_path), **secrets})


@pytest.mark.kafka
@pytest.mark.slow
@_each("sql")
def test_a_statement_runs_on_the_store(item: Item, place: Place) -> None:
    with sqlite3.connect(place.folder / "offsets.db") as store:
        store.execute(item.code).fetchall()


@pytest.mark.packaging
@_each("yaml")
def test_values_are_those_of_the_chart(item: Item) -> None:
    required = {"settings": {"bootstrap_servers": "kafka:9092"}, "http": {"tokensSecret": "t"}}
    values = required | yaml.safe_load(item.code)
    rendered = run_helm("template", "sparklag", CHART, values=values)
    assert rendered.returncode == 0, rendered.stderr


def test_what_another_test_runs_is_taken_from_the_page_or_the_same() -> None:
    for item in _ALL:
        if item.run_by is None:
            continue
        path = ROOT / item.run_by
        texts = [path.read_text()]
        if path.suffix == ".py":
            constants = (n for n in ast.walk(ast.parse(texts[0])) if isinstance(n, ast.Constant))
            texts = [n.value for n in constants if isinstance(n.value, str) and n.value[10:]]
        command = item.code.partition("  ")[0]
        is_taken = item.page in texts  # the whole page
        assert is_taken or any(t in command or command in t for t in texts), str(item)


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.spark
def test_the_snippets_run_in_a_driver(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """All in one Spark session, whose query `orders` they read; each with a handle of its own."""
    folder = place.folder / "driver"
    folder.mkdir()
    monkeypatch.chdir(folder)
    _fill_store(folder, place.kafka.bootstrap_servers, str(uuid.uuid4()))
    for name, value in {"OFFSETS_TOPIC": "driver-offsets", "LAG_TOPIC": "driver-lag"}.items():
        monkeypatch.setenv(f"SPARKLAG_{name}", value)
    monkeypatch.setenv("SPARKLAG_HTTP_PORT", "0")
    spark = build_session()
    query = start_query(
        read_kafka(spark, place.kafka.bootstrap_servers, subscribe="orders"), folder / "checkpoint"
    )
    try:
        names: dict[str, Any] = {}
        for item in _ALL:
            if item.language == "python" and item.is_run_here:
                names |= {"spark": spark}
                try:
                    _run_statements(place.substituted(item.code), str(item), names)
                finally:
                    # Also one without a name: `sparklag.lag` elsewhere would read by it.
                    while handle := newest_handle():
                        handle.close()
    finally:
        query.stop()
        spark.stop()


def _run_statements(code: str, name: str, names: dict[str, Any]) -> None:
    """One after the other: what is read may not be published yet."""
    deadline = time.monotonic() + DEADLINE_S
    for statement in ast.parse(code, name).body:
        compiled = compile(ast.Module([statement], []), name, "exec")
        while True:
            try:
                exec(compiled, names)
                break
            except (QueryNotFound, LagUnavailable):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


def test_nearly_all_is_run_and_the_rest_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    counts = Counter(item.treatment for item in _ALL)
    share = counts["run"] / len(_ALL)
    rest = "".join(f"\n  {item}: {item.reason}" for item in _ALL if item.treatment == "named")
    figures = ", ".join(f"{counts[each]} {each}" for each in ("run", "checked", "named"))
    with capsys.disabled():
        sys.stdout.write(f"\n{figures}: {share:.1%} run{rest}\n")
    assert share >= SHARE
    assert all(item.reason for item in _ALL if item.treatment == "named")
