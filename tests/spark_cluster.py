"""A real Spark cluster for tests: its own standalone master, and one worker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import httpx
import pyspark

from sparklag_jobs.broker.child_process import free_ports
from tests.local_servers import HOST, LocalCluster
from tests.spark_configuration import SUBMIT_OPTIONS

_PROGRAMS: Final = Path(pyspark.__file__).parent / "bin"
SPARK_SUBMIT: Final = str(_PROGRAMS / "spark-submit")


class SparkCluster(LocalCluster):
    """With one core for executors. They share files with the driver, and no Python."""

    name = "spark-cluster"

    def __init__(self) -> None:
        super().__init__()
        self._port, self._page = free_ports(2)

    @property
    def submit(self) -> list[str]:
        return [SPARK_SUBMIT, *SUBMIT_OPTIONS, "--master", self.master]

    def start(self) -> None:
        self._start("master", "--port", str(self._port), "--webui-port", str(self._page))
        more = ("--cores", "1", "--memory", "1g", "--webui-port", "0")
        self._start("worker", *more, "--work-dir", str(self._folder / "work"), self.master)
        self._await_answer()

    def applications(self) -> list[str]:
        return [each["name"] for each in self._state()["completedapps"]]

    @property
    def master(self) -> str:
        return f"spark://{HOST}:{self._port}"

    def _start(self, name: str, *arguments: str) -> None:
        program = f"org.apache.spark.deploy.{name}.{name.capitalize()}"
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        command = [str(_PROGRAMS / "spark-class"), program, "--host", HOST, *arguments]
        self._start_node(name, command, environment)

    def _answers(self) -> bool:
        return bool(self._state()["aliveworkers"] == 1)

    def _state(self) -> dict[str, Any]:
        return dict(httpx.get(f"http://{HOST}:{self._page}/json/", timeout=10).json())
