"""Java, and jars by Maven coordinates, downloaded once with the Ivy inside Spark.

The local broker and Spark's Kafka connector need only pyspark, or a Spark at SPARK_HOME, and Java.
Cached jars need no Spark. As a program this downloads the connector, unless it is cached.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Final
from xml.sax.saxutils import quoteattr

from sparklag_jobs.errors import DownloadFailed, JavaMissing
from sparklag_schemas.errors import install_command

KAFKA_VERSION: Final = "4.4.0"

OLDEST_JAVA: Final = 17
NEWEST_JAVA: Final = 22
"""From Java 23 on, `Subject.getSubject` throws; the Hadoop client inside Spark 4.0 calls it."""

_HINT: Final = (
    f"install Java {OLDEST_JAVA} to {NEWEST_JAVA} (Debian, Ubuntu: apt install"
    " openjdk-17-jre-headless; macOS: brew install openjdk@17) or point JAVA_HOME at one"
)

_IVY_FILE: Final = """\
<ivy-module version="2.0">
 <info organisation="sparklag" module="jars"/>
 <configurations><conf name="default"/></configurations>
 <dependencies>
{}
 </dependencies>
</ivy-module>"""

_DOWNLOAD_DEADLINE_S: Final = 600
_LOG_LINES_SHOWN: Final = 8

# Ivy runs for seconds and mostly waits, so it compiles little, and skips sources and documentation.
# Checksums from the same host over the same TLS connection prove nothing, and take half of the
# time; Ivy checks each file's length.
_IVY_OPTIONS: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Divy.maven.lookup.sources=false",
    "-Divy.maven.lookup.javadoc=false",
    "-Divy.checksums=",
)


@dataclass(frozen=True)
class Module:
    """Coordinates of a Maven artifact. In an exclusion they may be regular expressions."""

    organisation: str
    name: str
    revision: str = ""
    archive: str = ""
    """`classifier.ext` of the one file to download, instead of the jar and its dependencies."""

    def __str__(self) -> str:
        return ":".join(part for part in (self.organisation, self.name, self.revision) if part)


# By Spark's minor version: the newest tested release for it.
_DELTA: Final = {
    "3.5": Module("io.delta", "delta-spark_2.12", "3.3.2"),
    "4.0": Module("io.delta", "delta-spark_2.13", "4.0.0"),
    "4.1": Module("io.delta", "delta-spark_4.1_2.13", "4.4.0"),
    "4.2": Module("io.delta", "delta-spark_4.2_2.13", "4.4.0"),
}


@functools.cache
def find_java() -> Path:
    """The `java` of JAVA_HOME, which Spark uses too, or else of PATH.

    Raises JavaMissing if there is none, or its version does not run Spark.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise JavaMissing(f"no java in PATH: {_HINT}")
    try:
        output = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaMissing(f"{java} does not run ({error}): {_HINT}") from error
    # 17 of "17.0.2", 8 of "1.8.0".
    version = re.search(r'version "(?:1\.)?(\d+)', output)
    if version is not None and not OLDEST_JAVA <= int(version[1]) <= NEWEST_JAVA:
        raise JavaMissing(f"{java} is Java {version[1]}: {_HINT}")
    return Path(java)


def kafka_jars() -> list[Path]:
    """The class path of a Kafka broker. Raises JavaMissing, DownloadFailed."""
    return resolve_jars(
        [
            Module("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
            # Without a binding the broker logs nothing.
            Module("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
        ]
    )


def spark_kafka_jars() -> list[Path]:
    """Spark's Kafka connector for the installed pyspark, see `jars_beside_spark`."""
    return _spark_module_jars("spark-sql-kafka-0-10")


def spark_avro_jars() -> list[Path]:
    """Spark's Avro module, see `jars_beside_spark`."""
    return _spark_module_jars("spark-avro")


def table_format_jars(table_format: str) -> list[Path]:
    """The runtime of `delta`, see `jars_beside_spark`; none for `parquet`."""
    if table_format != "delta":
        return []
    version = str(_pyspark().__version__)
    module = _DELTA.get(".".join(version.split(".")[:2]))
    if module is None:
        raise DownloadFailed(f"no version of Delta is listed for Spark {version}")
    return jars_beside_spark(module)


def _spark_module_jars(name: str) -> list[Path]:
    version = str(_pyspark().__version__)
    scala = "2.12" if version.startswith("3.") else "2.13"
    return jars_beside_spark(Module("org.apache.spark", f"{name}_{scala}", version))


def jars_beside_spark(module: Module) -> list[Path]:
    """The jars of a module for `spark.jars`, without jars of Spark itself. Raises JavaMissing,
    DownloadFailed."""
    present = {re.sub(r"-\d[^/]*\.jar$", "", jar.name) for jar in spark_jars_dir().glob("*.jar")}
    return resolve_jars(
        [module],
        excluding=[
            Module("org.apache.hadoop", "hadoop-client-.*"),
            *(Module(".*", re.escape(name)) for name in sorted(present)),
        ],
    )


def default_cache_dir() -> Path:
    """`sparklag` in XDG_CACHE_HOME, or in ~/.cache if that is not set."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "sparklag"


def resolve_jars(
    modules: Sequence[Module], *, excluding: Iterable[Module] = (), cache_dir: Path | None = None
) -> list[Path]:
    """The jars of `modules` with their dependencies, or their archives, sorted by name; from the
    cache if possible.

    Safe in several processes at once: one downloads, the others wait. Raises JavaMissing,
    DownloadFailed.
    """
    cache = cache_dir or default_cache_dir()
    description = _ivy_file(modules, excluding)
    digest = hashlib.sha256(description.encode()).hexdigest()[:12]
    target = cache / "jars" / f"{modules[0].name}-{modules[0].revision}-{digest}"
    if not any(target.glob("*")):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with locked(target.with_name(f"{target.name}.lock")):
                if not any(target.glob("*")):
                    _fetch(modules, description, target)
        except OSError as error:
            raise DownloadFailed(f"cannot keep jars in {cache}: {error}") from error
    return sorted(target.glob("*"))


def _fetch(modules: Sequence[Module], description: str, target: Path) -> None:
    with TemporaryDirectory(prefix=".fetching-", dir=target.parent) as folder:
        scratch = Path(folder)
        jars = scratch / "jars"
        jars.mkdir()
        (scratch / "ivy.xml").write_text(description)
        # A separate cache: Ivy does not lock a shared one, and would keep every jar twice.
        _run_ivy(modules, scratch / "ivy.xml", jars, scratch / "ivy")
        # Only a complete set gets the final name, even if the machine stops half way.
        jars.rename(target)


def _run_ivy(modules: Sequence[Module], description: Path, jars: Path, ivy_cache: Path) -> None:
    names = ", ".join(map(str, modules))
    command = [str(find_java()), *_IVY_OPTIONS, "-jar", str(_ivy_jar())]
    command += ["-ivy", str(description), "-confs", "default", "-cache", str(ivy_cache)]
    # No filter by artifact type: some jars are published as "bundle" and would be missing.
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
        raise DownloadFailed(f"{names}: no download within {_DOWNLOAD_DEADLINE_S} s") from error
    except OSError as error:
        raise JavaMissing(f"{command[0]} does not run: {error}") from error
    if done.returncode != 0 or not any(jars.glob("*")):
        # Omits stack frames and separators, which hide the cause.
        lines = [line.strip() for line in done.stdout.splitlines()]
        lines = [line for line in lines if line.strip(":- \t") and not line.startswith("at ")]
        end = "\n".join(lines[-_LOG_LINES_SHOWN:])
        raise DownloadFailed(
            f"cannot fetch {names}; is this machine online? The end of Ivy's log:\n{end}"
        )


def _ivy_file(modules: Iterable[Module], excluding: Iterable[Module]) -> str:
    dependencies = [_ivy_dependency(module) for module in modules]
    dependencies += [
        f"  <exclude org={quoteattr(module.organisation)} module={quoteattr(module.name)}"
        ' matcher="exactOrRegexp"/>'
        for module in excluding
    ]
    # This text is the key of the cache.
    return _IVY_FILE.format("\n".join(dependencies))


def _ivy_dependency(module: Module) -> str:
    dependency = (
        f"  <dependency org={quoteattr(module.organisation)} name={quoteattr(module.name)}"
        f" rev={quoteattr(module.revision)}"
    )
    if not module.archive:
        return f'{dependency} conf="default->default"/>'
    classifier, _, ext = module.archive.partition(".")
    return (
        f'{dependency} conf="default->master" transitive="false">\n'
        f"   <artifact name={quoteattr(module.name)} type={quoteattr(ext)} ext={quoteattr(ext)}"
        ' xmlns:m="http://ant.apache.org/ivy/maven"'
        f" m:classifier={quoteattr(classifier)}/>\n"
        "  </dependency>"
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file's lock. The system releases it when the process ends."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _ivy_jar() -> Path:
    jars = sorted(spark_jars_dir().glob("ivy-*.jar"))
    if not jars:
        raise DownloadFailed(f"no ivy jar in {spark_jars_dir()}: is this Spark complete?")
    return jars[-1]


def spark_jars_dir() -> Path:
    home = os.environ.get("SPARK_HOME")
    if home and find_spec("pyspark") is None:
        return Path(home) / "jars"
    package = Path(str(_pyspark().__file__)).parent
    # A pip installation has the jars inside; a Spark distribution has SPARK_HOME/python/pyspark.
    inside = package / "jars"
    return inside if inside.is_dir() else package.parents[1] / "jars"


def _pyspark() -> ModuleType:
    try:
        import pyspark
    except ImportError as error:
        raise DownloadFailed(f"pyspark is not installed: {install_command('demo')}") from error
    return pyspark


if __name__ == "__main__":
    spark_kafka_jars()
