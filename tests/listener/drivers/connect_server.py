"""A Spark Connect server with the Kafka connector, until it is killed: `python -m`.

Arguments: properties, `name=value`. Prints its port, and with properties its number of sessions.
"""

from __future__ import annotations

import signal
import sys
import time
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
            **dict(each.split("=", 1) for each in sys.argv[1:]),
        },
        [*connector_jars(), *connect_jars()],
    )
    jvm: Any = spark._jvm
    service = getattr(
        getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$"), "MODULE$"
    )
    tell(f"port: {service.localPort()}")
    while sys.argv[1:]:  # Spark 3.5 does not list them
        tell(f"sessions: {service.sessionManager().listActiveSessions().size()}")
        time.sleep(1)
    signal.pause()


if __name__ == "__main__":
    main()
