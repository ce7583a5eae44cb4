"""A real HDFS for tests: one NameNode and one DataNode of Hadoop, with WebHDFS."""

from __future__ import annotations

import getpass
import json
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from subprocess import STDOUT, run
from typing import Any, Final

from sparklag_pipeline.broker.child_process import ChildProcess, free_ports, stop_all
from sparklag_pipeline.broker.java import find_java
from sparklag_pipeline.broker.maven import Module, resolve_jars
from tests.child_processes import Startable, freeze, thaw
from tests.waiting import wait_until_up

_START_S: Final = 150.0
JVM_OPTIONS: Final = ("-Xms64m", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_NAME_NODE: Final = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATA_NODE: Final = "org.apache.hadoop.hdfs.server.datanode.DataNode"
HOST: Final = "127.0.0.1"


def hadoop_jars() -> list[Path]:
    """Hadoop's servers, and all they need."""
    return resolve_jars(
        [
            Module("org.apache.hadoop", "hadoop-client-minicluster", "3.4.1"),
            # WebHDFS needs it, and Java has it no more.
            Module("javax.xml.bind", "jaxb-api", "2.3.1"),
            # Without a binding they log nothing.
            Module("org.slf4j", "slf4j-simple", "1.7.36"),
            # YARN's servers name these, and do not bring them.
            Module("ch.qos.reload4j", "reload4j", "1.2.22"),
            Module("org.bouncycastle", "bcpkix-jdk18on", "1.78.1"),
        ]
    )


def hadoop_configuration(properties: Mapping[str, str]) -> str:
    """The text of a file of Hadoop's configuration."""
    lines = (
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in properties.items()
    )
    return f"<configuration>{''.join(lines)}</configuration>"


class HdfsCluster(Startable):
    """Its data are gone with it.

    Whoever started it is its superuser; others have rights as in a POSIX file system.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="sparklag-hdfs-"))
        self._rpc_port, self._http_port = free_ports(2)
        self._nodes: list[ChildProcess] = []

    @property
    def webhdfs(self) -> str:
        """host:port of WebHDFS."""
        return f"{HOST}:{self._http_port}"

    @property
    def name_node(self) -> str:
        """host:port as in `hdfs://` locations."""
        return f"{HOST}:{self._rpc_port}"

    def storage(self, **options: Any) -> dict[str, dict[str, Any]]:
        """Options of a CheckpointStore that reach `hdfs://` and `webhdfs://` locations."""
        user = {"user": getpass.getuser(), **options}
        return {"hdfs": {"webhdfs": self.webhdfs, **user}, "webhdfs": user}

    def client(self) -> Any:
        """fsspec's file system, for a test to write with."""
        from fsspec.implementations.webhdfs import WebHDFS

        return WebHDFS(HOST, self._http_port, user=getpass.getuser(), skip_instance_cache=True)

    def freeze(self) -> None:
        """Hold it: connections stay open, and nothing is answered until `thaw`."""
        for node in self._nodes:
            freeze(node)

    def thaw(self) -> None:
        """Let it go on."""
        for node in self._nodes:
            thaw(node)

    def close(self) -> None:
        """Idempotent."""
        stop_all(self._nodes)
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        jars = hadoop_jars()
        configuration = self._folder / "conf"
        configuration.mkdir()
        for name in ("core-site.xml", "hdfs-site.xml"):
            (configuration / name).write_text(self._configuration())
        java = [str(find_java()), *JVM_OPTIONS, "-cp", f"{configuration}:{jars[0].parent}/*"]
        with (self._folder / "format.log").open("wb") as log:
            run([*java, _NAME_NODE, "-format"], stdout=log, stderr=STDOUT, check=True, timeout=120)
        for name, main in (("namenode", _NAME_NODE), ("datanode", _DATA_NODE)):
            node = ChildProcess(
                name, [*java, main], log_path=self._folder / f"{name}.log", directory=self._folder
            )
            self._nodes.append(node)
            node.start()
        wait_until_up(self._nodes, self._takes_files, _START_S)

    def _configuration(self) -> str:
        return hadoop_configuration(self._properties())

    def _properties(self) -> dict[str, str]:
        return {
            "fs.defaultFS": f"hdfs://{self.name_node}",
            "dfs.namenode.name.dir": (self._folder / "names").as_uri(),
            "dfs.datanode.data.dir": (self._folder / "blocks").as_uri(),
            "dfs.namenode.http-address": self.webhdfs,
            # The NameNode is told which ones they are.
            "dfs.datanode.address": f"{HOST}:0",
            "dfs.datanode.ipc.address": f"{HOST}:0",
            "dfs.datanode.http.address": f"{HOST}:0",
            "dfs.replication": "1",
            "dfs.namenode.safemode.extension": "0",
        }

    def _takes_files(self) -> bool:
        """Whether the NameNode has a DataNode, and has left its safe mode."""
        query = "jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        try:
            with urllib.request.urlopen(f"http://{self.webhdfs}/{query}", timeout=10) as answer:
                (state,) = json.load(answer)["beans"]
        except (OSError, ValueError):
            return False
        return bool(state["NumLiveDataNodes"] == 1 and state["FSState"] == "Operational")
