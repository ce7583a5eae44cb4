"""The drivers of these tests start from their archive of class data."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from scripts.class_data import spark_class_data
from sparklag_jobs.broker.maven import spark_kafka_jars
from tests.processes import maps_file


@pytest.mark.spark
def test_the_jvm_of_a_session_maps_it(spark: SparkSession) -> None:
    archive = spark_class_data(spark_kafka_jars())
    assert archive.options(), "not made: `make downloads`"
    jvm: Any = spark._jvm
    assert maps_file(jvm.java.lang.ProcessHandle.current().pid(), archive.path)
