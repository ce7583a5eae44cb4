"""A driver that writes Avro: its registry may come late; a missing package is an error at once."""

from __future__ import annotations

from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import fastavro
import pytest

from sparklag_schemas import Observation, RegistrySettings
from sparklag_schemas.avro.schema import declared
from sparklag_schemas.errors import install_command
from tests.listener.test_publishing import publishing
from tests.local_kafka import LocalKafka
from tests.logged import logged
from tests.schema_registry import SchemaRegistryServer
from tests.scripts import run_script
from tests.second_client import SecondClient
from tests.tcp_proxy import TcpProxy

WITHOUT_AVRO = """
import sys
sys.modules["httpx"] = None
from sparklag_schemas import RegistrySettings, Settings
from sparklag_schemas.errors import MissingPackage
from sparklag_schemas.avro.formats import MessageFormats
try:
    MessageFormats(Settings(registry=RegistrySettings(url="http://registry:8081")))
except MissingPackage as missing:
    print(missing)
"""


def _batch_id(value: bytes) -> Any:
    """Decode by Avro alone: the registry is gone by now."""
    result = fastavro.schemaless_reader(BytesIO(value[5:]), declared(Observation), None)
    assert isinstance(result, dict)
    return result["batch_id"]


@pytest.mark.kafka
async def test_observations_wait_for_the_registry_and_then_go_out_in_avro(
    kafka: LocalKafka,
    second_client: SecondClient,
    registry: SchemaRegistryServer,
    topic_name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with TcpProxy(urlsplit(registry.url).port or 0) as proxy:
        proxy.cut()
        url = urlsplit(registry.url)._replace(netloc=f"127.0.0.1:{proxy.port}").geturl()
        settings = RegistrySettings(url=url, timeout_s=20.0)
        avro: dict[str, Any] = {"format": "avro", "registry": settings}
        async with publishing(kafka.bootstrap_servers, topic_name, **avro) as publisher:
            publisher.put("query-a", 1)
            await publisher.failed(times=2)
            assert url in str(publisher.stats.last_error)
            assert publisher.stats.dropped == 0
            proxy.restore()
            await publisher.published()
            # It knows the schema now.
            proxy.cut()
            publisher.put("query-a", 2)
            await publisher.published()
    output = logged(caplog)
    assert len([line for line in output if "cannot publish" in line]) == 1
    messages = list(second_client.read_all(topic_name))
    assert len({(message.value() or b"")[:5] for message in messages}) == 1
    assert dict(messages[0].headers() or ())["content-type"] == b"application/avro"
    assert [_batch_id(message.value() or b"") for message in messages] == [1, 2]


def test_what_is_missing_is_named_with_how_to_get_it() -> None:
    done = run_script(WITHOUT_AVRO)
    assert done.lines == [
        f"registry.url is set, and httpx is missing: {install_command('avro')}"
    ], done.errors
