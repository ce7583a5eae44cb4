"""The processes of the demo, and their lags."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparklag_jobs.broker.child_process import ChildProcess, free_port, is_free, stop_all
from sparklag_jobs.broker.local_kafka import HOST, LocalKafka
from sparklag_jobs.broker.maven import find_java, kafka_jars
from sparklag_jobs.demo.streams import (
    HIGHEST_RATE,
    LOWEST_RATE,
    MAX_PAYMENTS_LAG,
    PAYMENTS,
    QUERY_NAMES,
    QUERY_RATE,
)
from sparklag_jobs.errors import ProcessFailed
from sparklag_schemas.messages.lag_event import LagEvent
from sparklag_schemas.text.formatting import records


@dataclass
class QueryLag:
    """The lag of `query`. `started_at` is `time.monotonic()`.

    In the directory of an earlier run, the service republishes that run's position: observations
    before `since_ms` (epoch) do not count.
    """

    query: str
    started_at: float
    since_ms: int = 0
    event: LagEvent | None = None
    events: int = 0
    first_lag_s: float | None = None
    highest_lag: int | None = None
    failures: int = 0

    def add(self, event: LagEvent, now: float) -> None:
        """Add a lag event from the service; an event that was added before does not count."""
        if event.observed_at < self.since_ms:
            return
        last = self.event
        if last is not None and event.event_id == last.event_id:
            return
        if event.status == "FAILED" and (last is None or last.status != "FAILED"):
            self.failures += 1
        self.event = event
        self.events += 1
        if event.total_lag is None:
            return
        if self.first_lag_s is None:
            self.first_lag_s = now - self.started_at
        self.highest_lag = max(event.total_lag, self.highest_lag or 0)

    def summary(self) -> str:
        if self.event is None or self.first_lag_s is None:
            return f"{self.query}: the service answered with no lag"
        failures = f", failures {self.failures}" if self.failures else ""
        return (
            f"{self.query}: first lag after {self.first_lag_s:.1f} s, {self.events:,} lag events,"
            f" highest {records(self.highest_lag)}, last {records(self.event.total_lag)}{failures}"
        )


_SERVICE_CONFIG: Final = f"""\
[thresholds.{PAYMENTS.topic}]
max_lag = {MAX_PAYMENTS_LAG}
"""
_CLIENTS_STOP_S: Final = 5.0
_BROKER_STOP_S: Final = 3.0
_PORT_ATTEMPTS: Final = 3


class DemoProcesses:
    """Broker, queries, service and producer, with their files in `directory`.

    `report` gets a line for each start.
    """

    def __init__(
        self,
        report: Callable[[str], None],
        directory: Path,
        http_port: int,
        kafka_port: int | None = None,
    ) -> None:
        self.broker = LocalKafka(directory / "kafka", kafka_port)
        self.service_is_ready = False
        self._report = report
        self._directory = directory
        self._http_port = self._requested_http_port = http_port
        self._port_attempts = 0
        self._checkpoints = directory / "checkpoints"
        self._children: dict[str, ChildProcess] = {}

    @property
    def http_url(self) -> str:
        return f"http://{HOST}:{self._http_port}"

    def start(self) -> None:
        """Start all processes except the producer. Raises PipelineError.

        The queries read their first records some time later.
        """
        self._choose_port()
        find_java()
        # Downloads next to the broker's own jars; the queries wait for it.
        self._start("connector", "sparklag_jobs.broker.maven")
        self._report("Jars: Kafka, and Spark's connector for it")
        kafka_jars()
        self._report("Kafka: one broker on this machine")
        self.broker.start()
        self._report(f"Queries: Spark starts {', '.join(QUERY_NAMES)}")
        queries = "sparklag_jobs.demo.demo_queries"
        self._start_client("driver", queries, "--checkpoints", self._checkpoints)
        self._start_service()

    def poll(self) -> None:
        """Start the producer once the queries run, and check whether the service is ready.

        Raises ProcessFailed, with the end of its log, for the first process that died.
        """
        self._require_alive()
        # Not earlier: the lag of a slow start of Spark would hide the wave.
        queries_run = all((self._checkpoints / name / "metadata").exists() for name in QUERY_NAMES)
        if queries_run and "producer" not in self._children:
            self._report(
                f"Producer: {LOWEST_RATE:,} to {HIGHEST_RATE:,} orders/s;"
                f" their query reads at most {QUERY_RATE:,}/s"
            )
            self._start_client("producer", "sparklag_jobs.demo.order_producer", "--all")
        if not self.service_is_ready:
            # uvicorn logs this line after it has bound the port.
            self.service_is_ready = self._children["service"].has_logged("Started server process")

    def stop(self) -> None:
        """Stop all processes, the broker last. Bounded in time; idempotent."""
        stop_all(list(self._children.values()), _CLIENTS_STOP_S)
        self.broker.stop(_BROKER_STOP_S)

    def _require_alive(self) -> None:
        # Another process may have taken the port first, as in two demos at once.
        is_alive, attempts = self._children["service"].is_alive(), self._port_attempts
        if not is_alive and attempts < _PORT_ATTEMPTS and not is_free(self._http_port):
            self._choose_port()
            self._start_service()
        # The connector's download ends by itself.
        others = (child for name, child in self._children.items() if name != "connector")
        for process in (self.broker, *others):
            if not process.is_alive():
                raise ProcessFailed(process.describe_end())

    def _choose_port(self) -> None:
        note = ""
        if self._port_attempts > 0 or not is_free(self._http_port):
            self._http_port = free_port()
            note = f" (port {self._requested_http_port} is taken)"
        self._port_attempts += 1
        self._report(f"The page: soon at {self.http_url}/{note}")

    def _start_service(self) -> None:
        config = self._directory / "service.toml"
        config.write_text(_SERVICE_CONFIG)
        self._report("Service: it measures their lag")
        options = ("--config", config, "--http-host", HOST, "--http-port", self._http_port)
        self._start_client("service", "sparklag_service", "serve", *options)

    def _start_client(self, name: str, module: str, *arguments: object) -> None:
        self._start(name, module, *arguments, "--bootstrap-servers", self.broker.bootstrap_servers)

    def _start(self, name: str, module: str, *arguments: object) -> None:
        # Settings of the user, in the environment or in the working directory, are for another
        # Kafka.
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("SPARKLAG_")
        }
        self._children[name] = ChildProcess(
            f"the {name}",
            [sys.executable, "-m", module, *map(str, arguments)],
            log_path=self._directory / f"{name}.log",
            environment=environment,
            directory=self._directory,
        )
        self._children[name].start()
