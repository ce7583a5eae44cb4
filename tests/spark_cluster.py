"""A real Spark cluster for tests: its own standalone master, and one worker."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import urllib.request
from pathlib import Path
from typing import Any, Final

import pyspark

from sparklag_pipeline.broker.child_process import ChildProcess, free_ports, stop_all
from tests.child_processes import Startable
from tests.spark_configuration import SUBMIT_OPTIONS
from tests.waiting import wait_until_up

_START_S: Final = 150.0
_HOST: Final = "127.0.0.1"
_PROGRAMS: Final = Path(pyspark.__file__).parent / "bin"
SPARK_SUBMIT: Final = str(_PROGRAMS / "spark-submit")


class SparkCluster(Startable):
    """With one core for executors. They share files with the driver, and no Python."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="sparklag-spark-cluster-"))
        self._port, self._page = free_ports(2)
        self._nodes: list[ChildProcess] = []

    @property
    def submit(self) -> list[str]:
        """The command, up to the application's own file."""
        return [SPARK_SUBMIT, *SUBMIT_OPTIONS, "--master", self.master]

    def start(self) -> None:
        self._start_node("master", "--port", str(self._port), "--webui-port", str(self._page))
        more = ("--cores", "1", "--memory", "1g", "--webui-port", "0")
        self._start_node("worker", *more, "--work-dir", str(self._folder / "work"), self.master)
        wait_until_up(self._nodes, self._has_worker, _START_S)

    def applications(self) -> list[str]:
        """The names of those that have ended."""
        return [each["name"] for each in self._state()["completedapps"]]

    def close(self) -> None:
        stop_all(self._nodes)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def master(self) -> str:
        """Its address."""
        return f"spark://{_HOST}:{self._port}"

    def _start_node(self, name: str, *arguments: str) -> None:
        program = f"org.apache.spark.deploy.{name}.{name.capitalize()}"
        node = ChildProcess(
            f"Spark's {name}",
            [str(_PROGRAMS / "spark-class"), program, "--host", _HOST, *arguments],
            log_path=self._folder / f"{name}.log",
            environment={
                **os.environ,
                "SPARK_LOCAL_IP": _HOST,
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            },
            directory=self._folder,
        )
        self._nodes.append(node)
        node.start()

    def _has_worker(self) -> bool:
        try:
            return bool(self._state()["aliveworkers"] == 1)
        except (OSError, ValueError):
            return False

    def _state(self) -> dict[str, Any]:
        """What the master's page says."""
        with urllib.request.urlopen(f"http://{_HOST}:{self._page}/json/", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
        return found
