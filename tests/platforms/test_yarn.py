"""YARN, as EMR runs it: the driver in the cluster, in a Python environment that the job brings."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import pyspark
import pytest

from sparklag_pipeline.broker.maven import spark_kafka_jars
from tests.hdfs_cluster import HOST
from tests.platforms.submitted_job import SPARKLAG_RUN, SubmittedJob, assert_observed
from tests.second_client import SecondClient
from tests.spark_cluster import SPARK_SUBMIT
from tests.yarn_cluster import YarnCluster

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.packaging]


def pack(environment: Path, archive: Path) -> Path:
    """`tar -czf ARCHIVE -C ENVIRONMENT .`"""
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.add(environment, arcname=".")
    return archive


def test_a_driver_in_the_cluster_is_observed_from_an_archive(
    second_client: SecondClient, topic_name: str, tmp_path: Path, driver_environment: Path
) -> None:
    job = SubmittedJob(second_client, topic_name, tmp_path)
    archive = pack(driver_environment, tmp_path / "environment.tar.gz")
    home = Path(pyspark.__file__).parent
    with YarnCluster() as cluster:
        try:
            job.run(
                [
                    *(SPARKLAG_RUN, SPARK_SUBMIT, "--master", "yarn", "--deploy-mode", "cluster"),
                    *("--archives", f"{archive}#environment"),
                    *("--conf", "spark.yarn.appMasterEnv.PYSPARK_PYTHON=./environment/bin/python"),
                    *("--conf", f"spark.yarn.appMasterEnv.SPARK_LOCAL_IP={HOST}"),
                    *("--conf", f"spark.yarn.jars=local:{home}/jars/*"),
                    *("--jars", ",".join(f"local:{jar}" for jar in spark_kafka_jars())),
                    *("--driver-memory", "600m", "--executor-memory", "600m"),
                    *("--num-executors", "1", "--conf", f"spark.yarn.stagingDir={tmp_path}"),
                    *job.properties,
                ],
                {"HADOOP_CONF_DIR": str(cluster.configuration), "PYSPARK_PYTHON": sys.executable},
            )
        except AssertionError as error:
            raise AssertionError(f"{error}\n{cluster.logs()[-4000:]}") from None
    assert_observed(job, "listener")
