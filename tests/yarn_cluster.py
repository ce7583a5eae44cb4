"""A real YARN for tests: one ResourceManager and one NodeManager, on the machine's own files."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import urllib.request
from pathlib import Path
from typing import Final

from sparklag_pipeline.broker.child_process import ChildProcess, free_ports, stop_all
from sparklag_pipeline.broker.java import find_java
from tests.child_processes import Startable
from tests.hdfs_cluster import HOST, JVM_OPTIONS, hadoop_configuration, hadoop_jars
from tests.waiting import wait_until_up

_START_S: Final = 150.0
_SERVERS: Final = "org.apache.hadoop.yarn.server"
_ADDRESSES: Final = ("address", "scheduler.address", "resource-tracker.address", "admin.address")


class YarnCluster(Startable):
    """Room for a driver and an executor, and everything on loopback."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="sparklag-yarn-"))
        self.configuration = self._folder / "conf"
        """What HADOOP_CONF_DIR names."""
        *self._ports, self._page = free_ports(1 + len(_ADDRESSES))
        self._nodes: list[ChildProcess] = []

    def start(self) -> None:
        self.configuration.mkdir()
        for name, properties in (("core", {"fs.defaultFS": "file:///"}), ("yarn", self._yarn())):
            file = self.configuration / f"{name}-site.xml"
            file.write_text(hadoop_configuration(properties))
        path = f"{self.configuration}:{hadoop_jars()[0].parent}/*"
        # Guice looks into classes of Java's own.
        options = (*JVM_OPTIONS, "--add-opens=java.base/java.lang=ALL-UNNAMED")
        java = find_java()
        for name in ("ResourceManager", "NodeManager"):
            node = ChildProcess(
                name,
                [str(java), *options, "-cp", path, f"{_SERVERS}.{name.lower()}.{name}"],
                log_path=self._folder / f"{name}.log",
                # Containers get its Java.
                environment={**os.environ, "JAVA_HOME": str(java.parents[1])},
                directory=self._folder,
            )
            self._nodes.append(node)
            node.start()
        wait_until_up(self._nodes, self._has_node, _START_S)

    def logs(self) -> str:
        """What its containers have written."""
        files = sorted((self._folder / "logs").glob("*/*/std*"))
        return "\n".join(file.read_text(errors="replace") for file in files)

    def close(self) -> None:
        stop_all(self._nodes)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _yarn(self) -> dict[str, str]:
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

    def _has_node(self) -> bool:
        url = f"http://{HOST}:{self._page}/ws/v1/cluster/metrics"
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return bool(json.load(response)["activeNodes"] == 1)
        except (OSError, ValueError):
            return False
