"""A real HDFS for tests: one NameNode and one DataNode of Hadoop, with WebHDFS."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from pathlib import Path
from subprocess import STDOUT, run
from typing import Any, Final

import httpx

from sparklag_jobs.broker.child_process import free_ports
from sparklag_jobs.broker.maven import Module, find_java, resolve_jars
from tests.local_servers import HOST, JVM_OPTIONS, LocalCluster

_NAME_NODE: Final = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATA_NODE: Final = "org.apache.hadoop.hdfs.server.datanode.DataNode"


def hadoop_jars() -> list[Path]:
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


def configured_java(folder: Path, files: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The command up to the main class. Writes `files`, such as `core-site.xml`, to the folder."""
    folder.mkdir()
    for name, properties in files.items():
        lines = (
            f"<property><name>{key}</name><value>{value}</value></property>"
            for key, value in properties.items()
        )
        text = f"<configuration>{''.join(lines)}</configuration>"
        (folder / f"{name}-site.xml").write_text(text)
    return [str(find_java()), *JVM_OPTIONS, "-cp", f"{folder}:{hadoop_jars()[0].parent}/*"]


class HdfsCluster(LocalCluster):
    """Whoever started it is its superuser; others have rights as in a POSIX file system."""

    name = "hdfs"

    def __init__(self) -> None:
        super().__init__()
        self._rpc_port, self._http_port = free_ports(2)

    @property
    def webhdfs(self) -> str:
        return f"{HOST}:{self._http_port}"

    @property
    def name_node(self) -> str:
        return f"{HOST}:{self._rpc_port}"

    def storage(self, **options: Any) -> dict[str, dict[str, Any]]:
        user = {"user": getpass.getuser(), **options}
        return {"hdfs": {"webhdfs": self.webhdfs, **user}, "webhdfs": user}

    def client(self) -> Any:
        from fsspec.implementations.webhdfs import WebHDFS

        return WebHDFS(HOST, self._http_port, user=getpass.getuser(), skip_instance_cache=True)

    def start(self) -> None:
        java = configured_java(
            self._folder / "conf", {"core": self._properties(), "hdfs": self._properties()}
        )
        with (self._folder / "format.log").open("wb") as log:
            run([*java, _NAME_NODE, "-format"], stdout=log, stderr=STDOUT, check=True, timeout=120)
        for name, main in (("namenode", _NAME_NODE), ("datanode", _DATA_NODE)):
            self._start_node(name, [*java, main])
        self._await_answer()

    def _properties(self) -> dict[str, str]:
        return {
            "fs.defaultFS": f"hdfs://{self.name_node}",
            "dfs.namenode.name.dir": (self._folder / "names").as_uri(),
            "dfs.datanode.data.dir": (self._folder / "blocks").as_uri(),
            "dfs.namenode.http-address": self.webhdfs,
            # The NameNode gets their numbers.
            "dfs.datanode.address": f"{HOST}:0",
            "dfs.datanode.ipc.address": f"{HOST}:0",
            "dfs.datanode.http.address": f"{HOST}:0",
            "dfs.replication": "1",
            "dfs.namenode.safemode.extension": "0",
        }

    def _answers(self) -> bool:
        query = "jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        (state,) = httpx.get(f"http://{self.webhdfs}/{query}", timeout=10).json()["beans"]
        return bool(state["NumLiveDataNodes"] == 1 and state["FSState"] == "Operational")
