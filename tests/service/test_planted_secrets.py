"""No output of a real service shows a secret: not of its settings, not of what others wrote."""

from __future__ import annotations

import json
import logging
import uuid

import httpx
import msgspec
import pytest

from sparklag_pipeline.free_ports import free_port
from sparklag_schemas import (
    CheckpointSettings,
    ClusterSettings,
    KafkaSettings,
    Settings,
    StoreSettings,
    encode,
)
from sparklag_schemas.clock import epoch_ms
from sparklag_schemas.lag_event import PartitionLag, TopicLag
from sparklag_schemas.printable import PrintableFormatter
from sparklag_schemas.topics import key_of
from sparklag_service.cli import lag, tail
from tests.messages import lag_event, seen
from tests.second_client import SecondClient
from tests.service.instances import instance
from tests.service.live.live_server import reading
from tests.waiting import eventually

pytestmark = pytest.mark.kafka

PLANTED = "hunter2Planted"
WRITTEN = {
    "exception": f"java.io.IOException: fs.s3a.secret.key={PLANTED}: refused",
    "checkpoint_location": f"webhdfs://me:{PLANTED}@namenode:9870/cp?token={PLANTED}",
}
REASON = f"it was refused by jdbc:postgresql://me:{PLANTED}@h/d, password={PLANTED}"


def with_secrets(settings: Settings) -> Settings:
    """One in every part that may have one; what each of them belongs to does not answer."""
    away = f"127.0.0.1:{free_port()}"
    login = KafkaSettings(
        security_protocol="SASL_PLAINTEXT", sasl_username="me", sasl_password=PLANTED
    )
    return msgspec.structs.replace(
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
    formatter = PrintableFormatter("%(levelname)s %(name)s %(message)s")
    return [formatter.format(record) for record in records]


async def test_no_output_shows_one(
    service_settings: Settings,
    second_client: SecondClient,
    topic_name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="sparklag_service")
    caplog.set_level(logging.DEBUG, logger="sparklag_offsets")
    second_client.create(topic_name, 1)
    second_client.produce(topic_name, [b"x"] * 9)
    settings = with_secrets(service_settings)
    assert PLANTED not in repr(settings)
    observed = seen(topic_name, {0: 4}, cause="terminated", **WRITTEN)
    partition = PartitionLag(partition=0, reason=REASON)
    foreign = lag_event(
        query_id=str(uuid.uuid4()),
        observed_at=epoch_ms(),
        measured_at=epoch_ms(),
        processed_at=None,
        topics=[TopicLag(topic=topic_name, source=0, partitions=[partition])],
        reason=REASON,
        catch_up_reason=REASON,
        **WRITTEN,
    )
    async with instance(settings) as (pipeline, port):
        shown: list[str] = []
        async with reading(port, "/stream") as stream, httpx.AsyncClient() as client:
            second_client.produce(
                settings.offsets_topic, [encode(observed)], key=key_of(observed.query_id)
            )
            second_client.produce(
                settings.lag_topic, [encode(foreign)], key=key_of(foreign.query_id)
            )
            told: set[str] = set()
            while told < {observed.query_id, foreign.query_id}:
                event = await stream.next()
                assert event is not None
                told.add(json.loads(event.data)["query_id"])
                shown.append(event.data)

            async def says_what_is_away() -> bool:
                found = str(pipeline.degraded())
                return all(part in found for part in ("east", "webhdfs", "postgresql"))

            await eventually(says_what_is_away, "each that is away is named")
            for path in (
                "/",
                "/lag",
                "/lag?details=true",
                f"/lag/{observed.query_id}",
                f"/lag/{foreign.query_id}",
                f"/lag/{foreign.query_id}/history",
                f"/offsets/{observed.query_id}",
                "/metrics",
                "/health/ready",
                "/openapi.json",
                f"/lag?api_key={PLANTED}&status={PLANTED}",
            ):
                answer = await client.get(f"http://127.0.0.1:{port}{path}")
                shown += [answer.text.replace(f"status={PLANTED}", ""), str(answer.headers)]
        for query_id in (observed.query_id, foreign.query_id):
            entry = pipeline.view.get(query_id)
            assert entry is not None
            shown += [entry.document.decode(), tail._line(entry.event)]
            shown.append(str(lag._headline(entry.event, epoch_ms())))
        published = [
            (message.value() or b"").decode()
            for message in second_client.read_all(settings.lag_topic)
            if message.key() == key_of(observed.query_id)
        ]
        shown += [*published, str(pipeline.degraded())]
    assert published
    assert [text for text in shown if PLANTED in text] == []
    assert [line for line in lines_of(caplog.records) if PLANTED in line] == []
    # What is no secret is there still.
    assert any("java.io.IOException" in text for text in shown)
