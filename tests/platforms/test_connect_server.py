"""A job on a Spark Connect server, observed by two variables of its client's environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.listener.connect_server import ConnectServer
from tests.platforms.submitted_job import SubmittedJob, assert_observed
from tests.second_client import SecondClient

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.spark]


def test_a_job_that_does_not_name_sparklag_is_observed(
    second_client: SecondClient, topic_name: str, tmp_path: Path
) -> None:
    job = SubmittedJob(second_client, topic_name, tmp_path)
    with ConnectServer(tmp_path / "server.log") as server:
        job.run("SPARK_REMOTE=sc://", {"server:15002": f"127.0.0.1:{server.port}"})
    assert_observed(job, "connect")
