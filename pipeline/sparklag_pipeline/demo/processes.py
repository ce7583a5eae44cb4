"""The demo's processes: started in order, supervised, ended in order."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sparklag_pipeline.broker.child_process import ChildProcess, free_port, is_free, stop_all
from sparklag_pipeline.broker.java import find_java
from sparklag_pipeline.broker.local_kafka import HOST, LocalKafka
from sparklag_pipeline.broker.maven import kafka_jars
from sparklag_pipeline.demo.orders import RateWave
from sparklag_pipeline.demo.state import DemoState
from sparklag_pipeline.errors import ProcessFailed

WAVE: Final = RateWave(low=100, high=2500, period_s=40)
# Between the wave's ends: when orders come faster than this the lag rises, else it falls.
TRIGGER_S: Final = 2
MAX_OFFSETS_PER_TRIGGER: Final = 4000
QUERY_RATE: Final = MAX_OFFSETS_PER_TRIGGER // TRIGGER_S

_CLIENTS_STOP_S: Final = 5.0
_BROKER_STOP_S: Final = 3.0
_PORT_ATTEMPTS: Final = 3


class DemoProcesses:
    """Broker, query, service and producer, with their files in `directory`.

    Keeps the steps of `state` up to date.
    """

    def __init__(self, state: DemoState, directory: Path, http_port: int) -> None:
        self.broker = LocalKafka(directory=directory / "kafka")
        self._state = state
        self._directory = directory
        self._http_port = self._requested_http_port = http_port
        self._port_attempts = 0
        self._children: dict[str, ChildProcess] = {}
        self._log_starts: dict[str, int] = {}

    def start(self) -> Iterator[None]:
        """Start all but the producer; yields when a step has changed. Raises PipelineError.

        The query takes some time after this to read its first orders.
        """
        state = self._state
        find_java()
        # Downloaded beside the broker's own jars; the query waits for it.
        self._start("connector", "sparklag_pipeline.broker.maven")
        for step, action in ((state.jars, kafka_jars), (state.broker, self.broker.start)):
            step.begin(time.monotonic())
            yield
            try:
                action()
            except BaseException:
                step.fail(time.monotonic())
                raise
            step.end(time.monotonic())
            yield
        state.bootstrap_servers = state.broker.note = self.broker.bootstrap_servers
        state.spark.begin(time.monotonic(), "Spark starts")
        self._start_client(
            "query",
            "sparklag_pipeline.demo.order_totals",
            *("--checkpoint", self._directory / "checkpoint"),
            *("--max-offsets-per-trigger", MAX_OFFSETS_PER_TRIGGER),
            *("--trigger-interval", f"{TRIGGER_S} seconds"),
        )
        self._start_service()
        yield

    def poll(self) -> None:
        """Update the steps, and start the producer when it is time.

        Raises ProcessFailed, with the end of its log, for the first process that has died.
        """
        state, now = self._state, time.monotonic()
        self._require_alive(now)
        query_runs = (self._directory / "checkpoint" / "metadata").exists()
        # Not before: a start of Spark may take long, and the lag of that time would hide the wave.
        if query_runs and "producer" not in self._children:
            self._start_producer()
        if state.producer.state == "busy" and self._has_logged("producer", "writing orders"):
            state.producer.end(now)
        # uvicorn's line, after the port is bound.
        if state.service.state == "busy" and self._has_logged("service", "Started server process"):
            state.service.end(now)
        if state.spark.state == "busy":
            if state.first_lag_s is not None:
                state.spark.end(now, f"PySpark, reads at most {QUERY_RATE:,} orders/s")
            elif query_runs:
                state.spark.note = "runs its first batch, the slowest"

    def stop(self) -> None:
        """End all of them, the broker last. Bounded in time; idempotent."""
        stop_all(list(self._children.values()), _CLIENTS_STOP_S)
        self.broker.stop(_BROKER_STOP_S)
        self.broker.close()

    def _require_alive(self, now: float) -> None:
        state = self._state
        if not self._children["service"].is_alive() and self._has_lost_the_port():
            self._start_service()
        for step, process in (
            (state.broker, self.broker),
            (state.producer, self._children.get("producer")),
            (state.spark, self._children["query"]),
            (state.service, self._children["service"]),
        ):
            if process is not None and not process.is_alive():
                step.fail(now)
                raise ProcessFailed(process.describe_end())

    def _start_producer(self) -> None:
        self._state.producer.begin(
            time.monotonic(), f"{WAVE.low:,.0f} to {WAVE.high:,.0f} orders/s and back"
        )
        self._start_client(
            "producer",
            "sparklag_pipeline.demo.order_producer",
            *("--low", WAVE.low, "--high", WAVE.high, "--period", WAVE.period_s),
        )

    def _start_service(self) -> None:
        note = ""
        if self._port_attempts > 0 or not is_free(self._http_port):
            self._http_port = free_port()
            note = f" (port {self._requested_http_port} is taken)"
        self._port_attempts += 1
        url = self._state.http_url = f"http://{HOST}:{self._http_port}"
        self._state.service.begin(time.monotonic(), url + note)
        address = ("--http-host", HOST, "--http-port", self._http_port)
        self._start_client("service", "sparklag_service", "serve", *address)

    def _has_lost_the_port(self) -> bool:
        """Whether the service died because another took its port first: two demos at once."""
        return self._port_attempts < _PORT_ATTEMPTS and not is_free(self._http_port)

    def _start_client(self, name: str, module: str, *arguments: object) -> None:
        self._start(name, module, *arguments, "--bootstrap-servers", self.broker.bootstrap_servers)

    def _start(self, name: str, module: str, *arguments: object) -> None:
        # The user's own sparklag settings, in the environment or in a file of the working
        # directory, are for another Kafka than this one.
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("SPARKLAG_")
        }
        log_path = self._directory / f"{name}.log"
        self._log_starts[name] = log_path.stat().st_size if log_path.exists() else 0
        self._children[name] = ChildProcess(
            f"the {name}",
            [sys.executable, "-m", module, *map(str, arguments)],
            log_path=log_path,
            environment=environment,
            directory=self._directory,
        )
        self._children[name].start()

    def _has_logged(self, name: str, text: str) -> bool:
        log = self._children[name].log_path.read_bytes()[self._log_starts[name] :]
        return text.encode() in log
