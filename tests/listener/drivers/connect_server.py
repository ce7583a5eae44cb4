"""A Spark Connect server with the Kafka connector, until it is killed: `python -m`."""

from __future__ import annotations

import signal
from typing import Any

from tests.lanes.connector import connect_jars, connector_jars
from tests.listener.drivers import build_session, tell


def main() -> None:
    spark = build_session(
        {
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            # A query that fails has a stack trace.
            "spark.sql.connect.serverStacktrace.enabled": "true",
        },
        [*connector_jars(), *connect_jars()],
    )
    jvm: Any = spark._jvm
    service = getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
    tell(f"port: {getattr(service, 'MODULE$').localPort()}")
    signal.pause()


if __name__ == "__main__":
    main()
