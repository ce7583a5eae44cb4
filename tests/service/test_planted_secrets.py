"""No output of a real service shows a secret: not of its settings, not of what others wrote."""

from __future__ import annotations

import json
import logging
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from sparklag_jobs.broker.child_process import ChildProcess, free_port
from sparklag_schemas import (
    CheckpointSettings,
    ClusterSettings,
    KafkaSettings,
    Settings,
    StoreSettings,
)
from sparklag_schemas.messages.lag_event import PartitionLag, TopicLag
from sparklag_schemas.messages.topics import key_of
from sparklag_schemas.presentation.tables import headline
from sparklag_schemas.runtime.log_output import log_formatter
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.instance_state import InstanceState
from sparklag_service.pipeline import Pipeline
from tests.child_processes import running
from tests.messages import lag_event, seen
from tests.second_client import SecondClient
from tests.service.cli.test_cli import environment
from tests.service.conftest import send
from tests.service.instances import instance
from tests.service.live.live_server import reading
from tests.waiting import eventually, wait_for

pytestmark = pytest.mark.kafka

PLANTED = "hunter2Planted"
WRITTEN = {
    "exception": f"java.io.IOException: fs.s3a.secret.key={PLANTED}: refused",
    "checkpoint_location": f"webhdfs://me:{PLANTED}@namenode:9870/cp?token={PLANTED}",
}
CONFIG = f"""
log_level = "DEBUG"
[registry]
url = "http://{{closed}}"
username = "me"
password = "{PLANTED}"
[clusters.east]
bootstrap_servers = "{{closed}}"
[clusters.east.kafka]
security_protocol = "SASL_PLAINTEXT"
sasl_username = "me"
sasl_password = "{PLANTED}"
[checkpoints]
locations = ["webhdfs://me:{PLANTED}@{{closed}}/cp/*?token={PLANTED}"]
[checkpoints.storage.webhdfs]
password = "{PLANTED}"
[store]
url = "postgresql://me:{PLANTED}@{{closed}}/offsets"
"""
REASON = f"it was refused by jdbc:postgresql://me:{PLANTED}@h/d, password={PLANTED}"


def with_secrets(settings: Settings) -> Settings:
    """One in every part that may have one; what each of them belongs to does not answer."""
    away = f"127.0.0.1:{free_port()}"
    login = KafkaSettings(
        security_protocol="SASL_PLAINTEXT", sasl_username="me", sasl_password=PLANTED
    )
    return replace(
        settings,
        clusters={"east": ClusterSettings(bootstrap_servers=away, kafka=login)},
        checkpoints=CheckpointSettings(
            locations=[f"webhdfs://me:{PLANTED}@{away}/cp/*?token={PLANTED}"],
            storage={"webhdfs": {"password": PLANTED}},
            interval_s=0.5,
        ),
        store=StoreSettings(url=f"postgresql://me:{PLANTED}@{away}/offsets"),
    )


def lines_of(records: list[logging.LogRecord]) -> list[str]:
    formatters = (log_formatter("console"), log_formatter("json"))
    return [formatter.format(record) for record in records for formatter in formatters]


async def test_no_output_shows_one(
    service_settings: Settings,
    second_client: SecondClient,
    topic: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="sparklag_service")
    caplog.set_level(logging.DEBUG, logger="sparklag")
    second_client.produce(topic, [b"x"] * 9)
    settings = with_secrets(service_settings)
    assert PLANTED not in repr(settings)
    observed = seen(topic, {0: 4}, cause="terminated", **WRITTEN)
    partition = PartitionLag(partition=0, reason=REASON)
    foreign = lag_event(
        query_id=str(uuid.uuid4()),
        observed_at=epoch_ms(),
        measured_at=epoch_ms(),
        processed_at=None,
        topics=[TopicLag(topic=topic, source=0, partitions=[partition])],
        reason=REASON,
        catch_up_reason=REASON,
        **WRITTEN,
    )
    queries = (observed.query_id, foreign.query_id)
    shown: list[str] = []
    async with instance(settings) as (pipeline, port):
        async with reading(port, "/stream") as stream:
            send(second_client, settings.offsets_topic, observed)
            send(second_client, settings.lag_topic, foreign)
            reported: set[str] = set()
            while reported < set(queries):
                (event,) = await stream.events(1)
                reported.add(json.loads(event.data)["query_id"])
                shown.append(event.data)

            async def reports_what_is_away() -> bool:
                result = str(InstanceState(pipeline).degraded())
                return all(part in result for part in ("east", "webhdfs", "postgresql"))

            await eventually(reports_what_is_away, "each that is away is named")
            shown += await outputs(pipeline, port, queries)
        published = [
            (message.value() or b"").decode()
            for message in second_client.read_all(settings.lag_topic)
            if message.key() == key_of(observed.query_id)
        ]
    # Another begins with what the topics hold.
    async with instance(replace(settings, store=StoreSettings())) as (later, port):
        result = await outputs(later, port, queries)
        assert any("java.io.IOException" in text for text in result)
        shown += result
    shown += published
    assert published
    assert [text for text in shown if PLANTED in text] == []
    assert [line for line in lines_of(caplog.records) if PLANTED in line] == []
    # What is no secret is there still.
    assert any("java.io.IOException" in text for text in shown)


async def outputs(pipeline: Pipeline, port: int, queries: Sequence[str]) -> list[str]:
    shown = [str(InstanceState(pipeline).degraded())]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        of_queries = (
            f"/{path}"
            for query in queries
            for path in (f"lag/{query}", f"lag/{query}/history", f"offsets/{query}")
        )
        requested = f"/lag?api_key={PLANTED}&status={PLANTED}"
        of_all = ("/", "/lag", "/lag?details=true", "/metrics", "/health/ready", "/openapi.json")
        for path in (*of_all, *of_queries, requested):
            answer = await client.get(path)
            shown += [answer.text.replace(f"status={PLANTED}", ""), str(answer.headers)]
    for query in queries:
        entry = pipeline.view.get(query)
        assert entry is not None
        shown += [entry.document.decode(), str(headline(entry.event, epoch_ms()))]
    return shown


COMMANDS = {
    "check": ("check",),
    "check of a login that is refused": ("check", "--bootstrap-servers", "{closed}"),
    "topics": ("topics", "create"),
    "tail": ("tail", "-n", "1"),
    "tail in JSON": ("tail", "-n", "1", "--json"),
    "checkpoint": ("checkpoint", f"webhdfs://me:{PLANTED}@{{closed}}/cp?token={PLANTED}"),
    "offsets": ("offsets", "show", "orders"),
    "offsets of a store that is named": (
        *("offsets", "show", "orders", "--store"),
        f"mysql://me:{PLANTED}@{{closed}}/offsets?ssl_key={PLANTED}",
    ),
    "queries": ("queries", "--url", f"http://me:{PLANTED}@{{closed}}"),
    "queries of no address": ("queries", "--url", f"http://me:{PLANTED}"),
    "lag": ("lag", "orders", "--url", f"http://me:{PLANTED}@{{closed}}/?token={PLANTED}"),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_no_command_shows_one(
    service_settings: Settings, second_client: SecondClient, tmp_path: Path, command: Sequence[str]
) -> None:
    away = f"127.0.0.1:{free_port()}"
    config = tmp_path / "sparklag.toml"
    config.write_text(CONFIG.format(closed=away))
    second_client.create(service_settings.offsets_topic, 2)
    second_client.create(service_settings.lag_topic, 2)
    event = lag_event(observed_at=epoch_ms(), measured_at=epoch_ms(), reason=REASON, **WRITTEN)
    arguments = [argument.format(closed=away) for argument in command]
    if "--url" not in command:
        arguments += ["--config", str(config)]
    log, program = tmp_path / "log", [sys.executable, "-m", "sparklag_service", *arguments]
    env = environment(service_settings)
    with running(ChildProcess("it", program, log_path=log, environment=env)) as process:

        def has_ended() -> bool:
            # Until `tail` follows, and then for it.
            send(second_client, service_settings.lag_topic, event)
            return not process.is_alive()

        wait_for(has_ended, "the command has ended")
    output = log.read_text()
    assert output
    assert PLANTED not in output
    assert "Traceback" not in output
