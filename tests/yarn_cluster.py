"""A real YARN for tests: one ResourceManager and one NodeManager, on the machine's own files."""

from __future__ import annotations

import os
from typing import Final

import httpx

from sparklag_jobs.broker.child_process import free_ports
from sparklag_jobs.broker.maven import find_java
from tests.hdfs_cluster import configured_java
from tests.local_servers import HOST, LocalCluster

_SERVERS: Final = "org.apache.hadoop.yarn.server"
_ADDRESSES: Final = ("address", "scheduler.address", "resource-tracker.address", "admin.address")


class YarnCluster(LocalCluster):
    """Room for a driver and an executor, and everything on loopback."""

    name = "yarn"

    def __init__(self) -> None:
        super().__init__()
        self.configuration = self._folder / "conf"
        """What HADOOP_CONF_DIR names."""
        *self._ports, self._page = free_ports(1 + len(_ADDRESSES))

    def start(self) -> None:
        files = {"core": {"fs.defaultFS": "file:///"}, "yarn": self._properties()}
        # Guice looks into classes of Java's own.
        opened = "--add-opens=java.base/java.lang=ALL-UNNAMED"
        java = [*configured_java(self.configuration, files), opened]
        # Containers get its Java.
        environment = {**os.environ, "JAVA_HOME": str(find_java().parents[1])}
        for name in ("ResourceManager", "NodeManager"):
            self._start_node(name, [*java, f"{_SERVERS}.{name.lower()}.{name}"], environment)
        self._await_answer()

    def logs(self) -> str:
        files = sorted((self._folder / "logs").glob("*/*/std*"))
        return "\n".join(file.read_text(errors="replace") for file in files)

    def _properties(self) -> dict[str, str]:
        ports = dict(zip(_ADDRESSES, self._ports, strict=True), **{"webapp.address": self._page})
        manager = {
            **{name: f"{HOST}:{port}" for name, port in ports.items()},
            # The others need a file of their own.
            "scheduler.class": f"{_SERVERS}.resourcemanager.scheduler.fifo.FifoScheduler",
        }
        node = {
            "hostname": HOST,
            "address": f"{HOST}:0",
            "localizer.address": f"{HOST}:0",
            "webapp.address": f"{HOST}:0",
            "local-dirs": str(self._folder / "local"),
            "log-dirs": str(self._folder / "logs"),
            "resource.memory-mb": "4096",
            "vmem-check-enabled": "false",
            "pmem-check-enabled": "false",
            "disk-health-checker.max-disk-utilization-per-disk-percentage": "100.0",
            # A container's logs outlive it.
            "delete.debug-delay-sec": "600",
        }
        return {
            **{f"yarn.resourcemanager.{name}": value for name, value in manager.items()},
            **{f"yarn.nodemanager.{name}": value for name, value in node.items()},
            "yarn.scheduler.minimum-allocation-mb": "128",
        }

    def _answers(self) -> bool:
        url = f"http://{HOST}:{self._page}/ws/v1/cluster/metrics"
        return bool(httpx.get(url, timeout=10).json()["activeNodes"] == 1)
