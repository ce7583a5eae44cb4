"""Jobs that do not name sparklag: on this machine, a standalone cluster, a Connect server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.listener.connect_server import ConnectServer
from tests.platforms.submitted_job import SubmittedJob, assert_observed
from tests.second_client import SecondClient
from tests.spark_cluster import SparkCluster

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture
def job(second_client: SecondClient, topic_name: str, tmp_path: Path) -> SubmittedJob:
    return SubmittedJob(second_client, topic_name, tmp_path)


def test_it_is_observed_by_two_variables(job: SubmittedJob) -> None:
    log = job.run("SPARKLAG_BOOTSTRAP_SERVERS=broker:9092 python")
    assert_observed(job, "listener")
    assert log.count("sparklag: ") == log.count("sparklag: observing ") == 1


def test_it_is_observed_on_a_standalone_cluster(job: SubmittedJob) -> None:
    with SparkCluster() as cluster:
        log = job.run("spark-submit --master spark://", {"spark://master:7077": cluster.master})
        assert cluster.applications() == ["counts"]
    assert_observed(job, "listener")
    assert log.count("sparklag: ") == log.count("sparklag: observing ") == 1


def test_a_job_that_does_not_name_sparklag_is_observed(job: SubmittedJob, tmp_path: Path) -> None:
    with ConnectServer(tmp_path / "server.log") as server:
        job.run("SPARK_REMOTE=sc://", {"server:15002": f"127.0.0.1:{server.port}"})
    assert_observed(job, "connect")
