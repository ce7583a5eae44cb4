"""`sparklag demo --kafka-only`: a broker to try with. It needs no Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from sparklag_jobs.broker.local_kafka import LocalKafka
from sparklag_jobs.demo.screen import Screen, broker_usage, own_command, own_python
from sparklag_jobs.errors import ProcessFailed

_TICK_S: Final = 0.2


def run_broker(broker: LocalKafka, screen: Screen, is_over: Callable[[], bool]) -> None:
    """Start it, print how to use it, and return when `is_over`. Raises PipelineError where it does
    not start, or dies."""
    screen.report("Kafka: one broker on this machine")
    broker.start()
    servers = broker.bootstrap_servers
    screen.announce("Bootstrap servers", servers)
    screen.print(broker_usage(servers, own_command(), own_python()))
    while not is_over():
        if not broker.is_alive():
            raise ProcessFailed(broker.describe_end())
        time.sleep(_TICK_S)
