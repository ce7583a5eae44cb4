"""Jars by Maven coordinates, fetched once with the Ivy that ships inside pyspark.

So a broker to try with, and Spark's Kafka connector, need nothing installed but pyspark and Java.
As a program it fetches the connector, where that is not here yet.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from sparklag_pipeline.broker.java import find_java
from sparklag_pipeline.errors import DownloadFailed, JavaMissing

KAFKA_VERSION: Final = "4.1.1"

# By Spark's minor version: the newest that is made for it, and was tried.
_DELTA_VERSIONS: Final = {"3.5": "3.3.2", "4.0": "4.0.0"}
_ICEBERG_VERSIONS: Final = {"3.5": "1.10.0", "4.0": "1.10.0"}

_DOWNLOAD_DEADLINE_S: Final = 600
_LOG_LINES_SHOWN: Final = 8

# Ivy runs for seconds and waits for answers: it compiles little, and does not look whether each
# module has sources and documentation too. A checksum from the same host by the same TLS connection
# proves nothing, and asking for them takes half of the time; Ivy looks at each file's length.
_IVY_OPTIONS: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Divy.maven.lookup.sources=false",
    "-Divy.maven.lookup.javadoc=false",
    "-Divy.checksums=",
)


@dataclass(frozen=True)
class Module:
    """A Maven artifact's coordinates. In an exclusion, a name may be a regular expression."""

    organisation: str
    name: str
    revision: str = ""
    archive: str = ""
    """`classifier.ext` of what is wanted of it instead of its jar and all that this needs."""

    def __str__(self) -> str:
        return ":".join(part for part in (self.organisation, self.name, self.revision) if part)


def kafka_jars(cache_dir: Path | None = None) -> list[Path]:
    """The class path of a Kafka broker. Raises JavaMissing, DownloadFailed."""
    return resolve_jars(
        [
            Module("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
            # Without a binding the broker logs nothing at all.
            Module("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
        ],
        cache_dir=cache_dir,
    )


def spark_kafka_jars(cache_dir: Path | None = None) -> list[Path]:
    """Spark's Kafka connector for the installed pyspark, for `spark.jars`.

    Only what Spark does not have itself. Raises JavaMissing, DownloadFailed.
    """
    version = _pyspark_version()
    return _beside_spark(
        Module("org.apache.spark", f"spark-sql-kafka-0-10_{_scala(version)}", version), cache_dir
    )


def spark_avro_jars(cache_dir: Path | None = None) -> list[Path]:
    """What Spark reads Avro with, for the installed pyspark. Raises JavaMissing, DownloadFailed."""
    version = _pyspark_version()
    return _beside_spark(
        Module("org.apache.spark", f"spark-avro_{_scala(version)}", version), cache_dir
    )


def table_format_jars(table_format: str, cache_dir: Path | None = None) -> list[Path]:
    """What Spark reads and writes `delta` or `iceberg` tables with; none for `parquet`.

    Only what Spark does not have itself. Raises JavaMissing, DownloadFailed.
    """
    version = _pyspark_version()
    scala, minor = _scala(version), ".".join(version.split(".")[:2])
    if table_format == "delta":
        module = Module("io.delta", f"delta-spark_{scala}", _DELTA_VERSIONS.get(minor, ""))
    elif table_format == "iceberg":
        name = f"iceberg-spark-runtime-{minor}_{scala}"
        module = Module("org.apache.iceberg", name, _ICEBERG_VERSIONS.get(minor, ""))
    else:
        return []
    if not module.revision:
        raise DownloadFailed(f"no {table_format} is known here for Spark {version}")
    return _beside_spark(module, cache_dir)


def _scala(spark_version: str) -> str:
    return "2.12" if spark_version.startswith("3.") else "2.13"


def _beside_spark(module: Module, cache_dir: Path | None) -> list[Path]:
    present = {re.sub(r"-\d[^/]*\.jar$", "", jar.name) for jar in _spark_jars_dir().glob("*.jar")}
    return resolve_jars(
        [module],
        excluding=[
            Module("org.apache.hadoop", "hadoop-client-.*"),
            *(Module(".*", re.escape(name)) for name in sorted(present)),
        ],
        cache_dir=cache_dir,
    )


def default_cache_dir() -> Path:
    """`sparklag` in XDG_CACHE_HOME, or in ~/.cache where that is not set."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "sparklag"


def resolve_jars(
    modules: Sequence[Module],
    *,
    excluding: Iterable[Module] = (),
    cache_dir: Path | None = None,
    ivy_settings: Path | None = None,
) -> list[Path]:
    """The jars of `modules` and all they need, or the archives that they name, sorted by name,
    from the cache if they are there.

    `ivy_settings` is an Ivy settings file, where the public repository is not the one to ask.
    Safe when several processes ask at once: one fetches, the others wait for it.
    Raises JavaMissing, DownloadFailed.
    """
    cache = cache_dir or default_cache_dir()
    description = _ivy_file(modules, excluding)
    digest = hashlib.sha256(description.encode()).hexdigest()[:12]
    target = cache / "jars" / f"{modules[0].name}-{modules[0].revision}-{digest}"
    if not any(target.glob("*")):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with _locked(target.with_name(f"{target.name}.lock")):
                if not any(target.glob("*")):
                    _fetch(modules, description, target, ivy_settings)
        except OSError as error:
            raise DownloadFailed(f"cannot keep jars in {cache}: {error}") from error
    return sorted(target.glob("*"))


def _fetch(
    modules: Sequence[Module],
    description: str,
    target: Path,
    ivy_settings: Path | None,
) -> None:
    scratch = Path(tempfile.mkdtemp(prefix=".fetching-", dir=target.parent))
    try:
        jars = scratch / "jars"
        jars.mkdir()
        (scratch / "ivy.xml").write_text(description)
        # A cache of its own: Ivy locks none, and what is kept is kept twice.
        _run_ivy(modules, scratch / "ivy.xml", jars, scratch / "ivy", ivy_settings)
        # Only a whole set ever has the final name, also when the machine stops half way.
        jars.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run_ivy(
    modules: Sequence[Module],
    description: Path,
    jars: Path,
    ivy_cache: Path,
    ivy_settings: Path | None,
) -> None:
    wanted = ", ".join(str(module) for module in modules)
    command = [str(find_java()), *_IVY_OPTIONS, "-jar", str(_ivy_jar())]
    command += ["-settings", str(ivy_settings)] if ivy_settings else []
    command += ["-ivy", str(description), "-confs", "default", "-cache", str(ivy_cache)]
    # No filter by artifact type: some jars are published as "bundle" and would go missing.
    command += ["-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]"]
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_DOWNLOAD_DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DownloadFailed(f"{wanted}: not here after {_DOWNLOAD_DEADLINE_S} s") from error
    except OSError as error:
        raise JavaMissing(f"{command[0]} does not run: {error}") from error
    if done.returncode != 0 or not any(jars.glob("*")):
        end = "\n".join(_telling_lines(done.stdout)[-_LOG_LINES_SHOWN:])
        raise DownloadFailed(f"cannot fetch {wanted}; is this machine online? Ivy said:\n{end}")


def _telling_lines(output: str) -> list[str]:
    """What Ivy said, without the frames and blanks that hide it."""
    lines = (line.strip() for line in output.splitlines())
    return [line for line in lines if line.strip(":- \t") and not line.startswith("at ")]


def _ivy_file(modules: Iterable[Module], excluding: Iterable[Module]) -> str:
    dependencies = [_ivy_dependency(module) for module in modules]
    excludes = [
        f"  <exclude org={quoteattr(module.organisation)} module={quoteattr(module.name)}"
        ' matcher="exactOrRegexp"/>'
        for module in excluding
    ]
    return "\n".join(
        [
            '<ivy-module version="2.0">',
            ' <info organisation="sparklag" module="jars"/>',
            ' <configurations><conf name="default"/></configurations>',
            " <dependencies>",
            *dependencies,
            *excludes,
            " </dependencies>",
            "</ivy-module>",
        ]
    )


def _ivy_dependency(module: Module) -> str:
    wanted = (
        f"  <dependency org={quoteattr(module.organisation)} name={quoteattr(module.name)}"
        f" rev={quoteattr(module.revision)}"
    )
    if not module.archive:
        return f'{wanted} conf="default->default"/>'
    classifier, _, ext = module.archive.partition(".")
    return (
        f'{wanted} conf="default->master" transitive="false">\n'
        f"   <artifact name={quoteattr(module.name)} type={quoteattr(ext)} ext={quoteattr(ext)}"
        ' xmlns:m="http://ant.apache.org/ivy/maven"'
        f" m:classifier={quoteattr(classifier)}/>\n"
        "  </dependency>"
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the file's lock. The system frees it when the process ends, however that happens."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _ivy_jar() -> Path:
    found = sorted(_spark_jars_dir().glob("ivy-*.jar"))
    if not found:
        raise DownloadFailed(f"no ivy jar in {_spark_jars_dir()}: is pyspark whole?")
    return found[-1]


def _pyspark_version() -> str:
    try:
        from pyspark.version import __version__
    except ImportError as error:
        raise DownloadFailed("pyspark is not installed: pip install 'sparklag[demo]'") from error
    return str(__version__)


def _spark_jars_dir() -> Path:
    try:
        import pyspark
    except ImportError as error:
        raise DownloadFailed("pyspark is not installed: pip install 'sparklag[demo]'") from error
    package = Path(pyspark.__file__).parent
    # Installed by pip the jars are inside; in a Spark distribution it is SPARK_HOME/python/pyspark.
    inside = package / "jars"
    return inside if inside.is_dir() else package.parents[1] / "jars"


if __name__ == "__main__":
    spark_kafka_jars()
