"""YARN, as EMR runs it: the driver in the cluster, in a Python environment that the job brings."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import pyspark
import pytest

from tests.clean_environment import ROOT, Environment, succeed
from tests.local_servers import HOST
from tests.platforms.submitted_job import SubmittedJob, assert_observed
from tests.second_client import SecondClient
from tests.yarn_cluster import YarnCluster

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.spark, pytest.mark.packaging]


@pytest.fixture(scope="module")
def driver_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    succeed(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    return Environment(folder / "environment", "driver.txt", wheel).python.parents[1]


def pack(environment: Path, archive: Path) -> None:
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.add(environment, arcname=".")


def test_a_driver_in_the_cluster_is_observed_from_an_archive(
    second_client: SecondClient, topic_name: str, tmp_path: Path, driver_environment: Path
) -> None:
    job = SubmittedJob(second_client, topic_name, tmp_path)
    pack(driver_environment, tmp_path / "environment.tar.gz")
    # A list of jars is one of URIs: where they are may have a space.
    (tmp_path / "jars").symlink_to(Path(pyspark.__file__).parent / "jars")
    with YarnCluster() as cluster:
        try:
            job.run(
                "spark-submit --master yarn --deploy-mode cluster",
                configuration={
                    "spark.yarn.jars": f"local:{tmp_path}/jars/*",
                    "spark.yarn.stagingDir": str(tmp_path),
                    "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": HOST,
                    "spark.driver.memory": "600m",
                    "spark.executor.memory": "600m",
                    "spark.executor.instances": "1",
                },
                environment={"HADOOP_CONF_DIR": str(cluster.configuration)},
            )
        except AssertionError as error:
            raise AssertionError(f"{error}\n{cluster.logs()[-4000:]}") from None
    assert_observed(job, "listener")
