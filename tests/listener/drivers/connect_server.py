"""A Spark Connect server with the Kafka connector, until its input ends: `python -m`."""

from __future__ import annotations

import sys
from typing import Any

from tests.listener.drivers import build_session, tell


def main() -> None:
    spark = build_session(
        {
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            # A query that fails says where.
            "spark.sql.connect.serverStacktrace.enabled": "true",
        }
    )
    jvm: Any = spark._jvm
    service = getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
    tell(f"port: {getattr(service, 'MODULE$').localPort()}")
    sys.stdin.read()


if __name__ == "__main__":
    main()
