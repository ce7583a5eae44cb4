"""The demo's processes: started in order, watched, ended in order."""

from __future__ import annotations

import os
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sparklag_pipeline.broker.child_process import ChildProcess, stop_all
from sparklag_pipeline.broker.free_ports import free_port
from sparklag_pipeline.broker.java import find_java
from sparklag_pipeline.broker.local_kafka import HOST, LocalKafka
from sparklag_pipeline.broker.maven import kafka_jars
from sparklag_pipeline.demo.orders import RateWave
from sparklag_pipeline.demo.progress import Step, Story
from sparklag_pipeline.errors import ProcessFailed

WAVE: Final = RateWave(low=100, high=2500, period_s=40)
# Between the wave's ends: when orders come faster than this the lag rises, else it falls.
TRIGGER_S: Final = 2
MAX_OFFSETS_PER_TRIGGER: Final = 4000
QUERY_RATE: Final = MAX_OFFSETS_PER_TRIGGER // TRIGGER_S

_CLIENTS_STOP_S: Final = 5.0
_BROKER_STOP_S: Final = 3.0
_PORT_ATTEMPTS: Final = 3
_HTTP_TIMEOUT_S: Final = 1.0


class DemoParts:
    """Broker, producer, query and service, with their files in `directory`.

    Keeps the story's steps up to date.
    """

    def __init__(self, story: Story, directory: Path, http_port: int) -> None:
        self.broker = LocalKafka(directory=directory / "kafka")
        self._story = story
        self._directory = directory
        self._checkpoint = directory / "checkpoint"
        self._http_port = http_port
        self._port_attempts = 0
        self._connector: ChildProcess | None = None
        self._producer: ChildProcess | None = None
        self._query: ChildProcess | None = None
        self._service: ChildProcess | None = None

    def start(self, refresh: Callable[[], None]) -> None:
        """Start all but the producer, which `advance` does; `refresh` is called at each step.

        The query takes some time after this to read its first orders. Raises PipelineError.
        """
        story = self._story
        find_java()
        # What is not here yet comes beside the broker's own jars; the query waits for it.
        self._connector = self._child("connector", ["sparklag_pipeline.broker.maven"])
        self._connector.start()
        self._step(story.jars, refresh, kafka_jars, "Kafka, and Spark's connector for it")
        self._step(story.broker, refresh, self.broker.start, "one broker on this machine")
        story.bootstrap_servers = self.broker.bootstrap_servers
        story.broker.note = story.bootstrap_servers

        story.spark.begin(time.monotonic(), "Spark starts")
        self._query = self._child(
            "query",
            [
                *(
                    "sparklag_pipeline.demo.order_totals",
                    "--bootstrap-servers",
                    story.bootstrap_servers,
                ),
                *("--checkpoint", str(self._checkpoint)),
                *("--max-offsets-per-trigger", str(MAX_OFFSETS_PER_TRIGGER)),
                *("--trigger-interval", f"{TRIGGER_S} seconds"),
            ],
        )
        self._query.start()
        self._start_service()
        refresh()

    def advance(self) -> None:
        """Look how far the query and the producer are, and start the producer when it is time."""
        story, now = self._story, time.monotonic()
        # Not before: a start of Spark may take long, and the lag of that time would hide the wave.
        if self._producer is None and (self._checkpoint / "metadata").exists():
            self._start_producer()
        if story.producer.state == "busy" and self._log_has("producer", "writing orders"):
            story.producer.end(now)
        if story.spark.state == "busy":
            if story.first_lag_s is not None:
                story.spark.end(now, f"PySpark, reads at most {QUERY_RATE:,} orders/s")
            elif (self._checkpoint / "metadata").exists():
                story.spark.note = "runs its first batch, the slowest"

    def note_service(self) -> None:
        """Ask the service whether it is up. Takes up to a second: not for an event loop."""
        service = self._story.service
        if service.state == "busy" and _answers(f"{self._story.http_url}/health/live"):
            service.end(time.monotonic())

    def require_alive(self) -> None:
        """Raises ProcessFailed, with the end of its log, for the first part that has died."""
        if not self.broker.is_alive():
            self._story.broker.fail(time.monotonic())
            raise ProcessFailed(self.broker.describe_end())
        if self._service is not None and not self._service.is_alive() and self._lost_the_port():
            self._start_service()
        for child, step in (
            (self._producer, self._story.producer),
            (self._query, self._story.spark),
            (self._service, self._story.service),
        ):
            if child is not None and not child.is_alive():
                step.fail(time.monotonic())
                raise ProcessFailed(child.describe_end())

    def stop(self) -> None:
        """End all of them, those that write first. Bounded in time; idempotent."""
        clients = (self._connector, self._producer, self._query, self._service)
        stop_all([child for child in clients if child is not None], _CLIENTS_STOP_S)
        self.broker.stop(_BROKER_STOP_S)
        self.broker.close()

    def _step(
        self, step: Step, refresh: Callable[[], None], action: Callable[[], object], note: str
    ) -> None:
        step.begin(time.monotonic(), note)
        refresh()
        try:
            action()
        except BaseException:
            step.fail(time.monotonic())
            raise
        step.end(time.monotonic())
        refresh()

    def _start_producer(self) -> None:
        self._story.producer.begin(
            time.monotonic(), f"{WAVE.low:,.0f} to {WAVE.high:,.0f} orders/s and back"
        )
        wave = ["--low", WAVE.low, "--high", WAVE.high, "--period", WAVE.period_s]
        servers = ["--bootstrap-servers", self.broker.bootstrap_servers]
        self._producer = self._child(
            "producer", ["sparklag_pipeline.demo.order_producer", *servers, *map(str, wave)]
        )
        self._producer.start()

    def _start_service(self) -> None:
        port = self._http_port
        note = f"http://{HOST}:{port}"
        if self._port_attempts > 0 or not _is_free(port):
            port = free_port()
            note = f"http://{HOST}:{port} (port {self._http_port} is taken)"
        self._port_attempts += 1
        self._story.http_url = f"http://{HOST}:{port}"
        self._story.service.begin(time.monotonic(), note)
        servers = self.broker.bootstrap_servers
        self._service = self._child(
            "service",
            [
                *("sparklag_service", "serve", "--bootstrap-servers", servers),
                *("--http-host", HOST, "--http-port", str(port)),
            ],
        )
        self._service.start()

    def _lost_the_port(self) -> bool:
        """Whether the service died because another took its port first: two demos at once.

        It may seem to have answered before: that was the other's.
        """
        port = int(str(self._story.http_url).rpartition(":")[2])
        return self._port_attempts < _PORT_ATTEMPTS and not _is_free(port)

    def _child(self, name: str, module_and_arguments: list[str]) -> ChildProcess:
        # The reader's own sparklag settings, in the environment or in a file where they stand,
        # are for their Kafka and not for this one.
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("SPARKLAG_")
        }
        return ChildProcess(
            f"the {name}",
            [sys.executable, "-m", *module_and_arguments],
            log_path=self._directory / f"{name}.log",
            environment=environment,
            directory=self._directory,
        )

    def _log_has(self, name: str, text: str) -> bool:
        path = self._directory / f"{name}.log"
        return path.exists() and text in path.read_text(errors="replace")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=_HTTP_TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind((HOST, port))
        except (OSError, OverflowError):
            return False
    return True
