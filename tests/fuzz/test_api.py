"""The REST interface keeps its OpenAPI document, whatever the request."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings

from sparklag_schemas import StoreSettings
from sparklag_schemas.settings import SCOPES, HttpTokenSettings
from sparklag_service.access.token_file import create_token
from sparklag_service.instance_state import InstanceState
from tests.local_kafka import LocalKafka
from tests.messages import seen
from tests.second_client import SecondClient
from tests.service.conftest import RunningService, settings_for
from tests.service.instances import instance

pytestmark = pytest.mark.kafka

SETTINGS = Path(__file__).with_name("schemathesis.toml")


@pytest.mark.parametrize("most_cases", [5, pytest.param(2_000, marks=pytest.mark.slow)])
async def test_schemathesis_finds_nothing_with_all_its_checks(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str, tmp_path: Path, most_cases: int
) -> None:
    """`most_cases`: of an operation and a phase."""
    second_client.create(topic_name, 1)
    file = tmp_path / "tokens.json"
    token = create_token(file, "fuzz", SCOPES, [], [], None)
    settings = settings_for(
        kafka.bootstrap_servers,
        store=StoreSettings(url=f"sqlite:///{tmp_path}/offsets.db"),
        http_tokens=HttpTokenSettings(file=str(file), requests_per_s=1e6),
    )
    async with instance(settings) as (pipeline, port):
        service = RunningService(pipeline, second_client)
        for name in ("orders", "returns"):
            query = seen(topic_name, {0: 0}, query=name)
            service.observe(query)
            await service.shows(query.query_id, lambda event: event.total_lag == 0, "it is there")
        cases = min(hypothesis_settings().max_examples, most_cases)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(SETTINGS)),
            *("run", f"http://127.0.0.1:{port}/openapi.json", "--max-examples", str(cases)),
            *("--header", f"Authorization: Bearer {token}"),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        text = output.decode()
        assert process.returncode == 0, text
        tried = re.search(r"(\d[\d,]*) generated", text)
        assert tried is not None, text
        assert int(tried[1].replace(",", "")) > cases, text
        # It is well afterwards, too.
        assert InstanceState(pipeline).not_ready() == {}
        assert pipeline.counters.reads_failed == 0
