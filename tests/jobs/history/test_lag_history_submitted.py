"""The job on a cluster, by spark-submit, from Kafka over TLS: the executors are other processes."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pyarrow.dataset  # type: ignore[import-untyped]  # it has no types
import pytest

from sparklag_jobs.broker.child_process import ChildProcess
from sparklag_jobs.broker.maven import spark_kafka_jars
from sparklag_jobs.history import lag_history
from sparklag_schemas import encode
from tests.certificates import Certificates
from tests.child_processes import run_to_end
from tests.local_kafka import LocalKafka
from tests.messages import lag_event
from tests.second_client import SecondClient
from tests.spark_cluster import SparkCluster

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

EVENTS = 60
START_MS = 1_790_035_200_000


def _config(broker: LocalKafka, certificates: Certificates, topic: str) -> str:
    kafka = {"security_protocol": "SSL", **certificates.client}
    return "\n".join(
        [
            f'bootstrap_servers = "{broker.bootstrap_servers}"',
            f'lag_topic = "{topic}"',
            f'offsets_topic = "{topic}-offsets"',
            "topic_replication_factor = 1",
            "[kafka]",
            *(f'{name} = "{value}"' for name, value in kafka.items()),
        ]
    )


def test_on_a_cluster_it_keeps_the_same_and_executors_need_no_python(
    tls_kafka: LocalKafka, certificates: Certificates, topic_name: str, tmp_path: Path
) -> None:
    config = tmp_path / "sparklag.toml"
    config.write_text(_config(tls_kafka, certificates, topic_name))
    client = SecondClient(tls_kafka.internal_servers)
    events = [
        lag_event(event_id=f"event-{number}", measured_at=START_MS + number * 10_000)
        for number in range(EVENTS)
    ]
    client.produce(client.create(topic_name, 2), [b"not one of ours", *map(encode, events)])
    with SparkCluster() as cluster:
        job = ChildProcess(
            "the history",
            [
                *cluster.submit,
                *("--jars", ",".join(str(jar) for jar in spark_kafka_jars())),
                *("--conf", f"spark.pyspark.driver.python={sys.executable}"),
                *("--conf", "spark.pyspark.python=/there/is/none"),
                *(str(Path(lag_history.__file__)), "--once", "--config", str(config)),
                *("--output", str(tmp_path / "lag-history"), "--lateness", "1 minute"),
            ],
            log_path=tmp_path / "log",
        )
        log = run_to_end(job, 400)
        assert cluster.applications() == ["lag-history"]

    assert "left out" in log
    assert "PRIVATE KEY" not in log
    tables = {
        name: pyarrow.dataset.dataset(tmp_path / "lag-history" / name, partitioning="hive")
        for name in ("partitions", "minutes")
    }
    kept = tables["partitions"].to_table(columns=["event_id"]).column(0).to_pylist()
    assert Counter(kept) == {event.event_id: 1 for event in events}
    measured = tables["minutes"].to_table(columns=["events"]).column(0).to_pylist()
    # The newest event is 10 s before the end: with a minute of lateness, two are not over.
    assert measured == [6] * (EVENTS // 6 - 2)
