"""`sparklag-run spark-submit` on a real cluster, with settings in Spark's configuration."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sparklag_pipeline.broker.maven import spark_kafka_jars
from tests.platforms.submitted_job import SPARKLAG_RUN, SubmittedJob, assert_observed
from tests.second_client import SecondClient
from tests.spark_cluster import SparkCluster

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_a_job_that_does_not_name_sparklag_is_observed_on_a_standalone_cluster(
    second_client: SecondClient, topic_name: str, tmp_path: Path
) -> None:
    job = SubmittedJob(second_client, topic_name, tmp_path)
    with SparkCluster() as cluster:
        log = job.run(
            [
                *(SPARKLAG_RUN, *cluster.submit),
                *("--jars", ",".join(str(jar) for jar in spark_kafka_jars())),
                *job.properties,
            ],
            {"PYSPARK_PYTHON": sys.executable},
        )
        assert cluster.applications() == ["counts"]
    assert_observed(job, "listener")
    assert "sparklag: " not in log
