"""The example that keeps results and offsets in one transaction is killed again and again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.databases.server import DatabaseServer
from tests.exactly_once import ExactlyOnce
from tests.faults.report import Row
from tests.second_client import SecondClient

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
]

KILLS = (4, pytest.param(30, marks=pytest.mark.soak))


@pytest.mark.parametrize("kills", KILLS)
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_every_record_is_there_once_after_kills(
    database: str,
    kills: int,
    request: pytest.FixtureRequest,
    second_client: SecondClient,
    topic_name: str,
    tmp_path: Path,
    fault_report: Row,
    seed: int,
) -> None:
    example = ExactlyOnce(
        second_client,
        second_client.create(topic_name, 3),
        database_url(database, request, tmp_path),
        tmp_path,
        random.Random(seed),
    )
    example.survive(kills)
    fault_report.note = f"seed {seed}: {example.moments}"
    example.check()
    if kills > 4:
        # Or the test has shown less than its name: few kills may miss one of these.
        assert example.moments.unwritten
        assert example.moments.skipped
        assert example.moments.checkpoints_deleted


def database_url(database: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if database == "sqlite":
        return f"sqlite:///{folder}/results.db"
    server = request.getfixturevalue(database)
    assert isinstance(server, DatabaseServer)
    return server.new_database().replace("postgresql:", "postgresql+psycopg:")
