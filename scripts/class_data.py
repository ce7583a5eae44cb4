"""Class-data archives (AppCDS): a JVM that maps its classes from an archive starts with half the
work. Those of the tests' brokers and Spark's drivers are made by tests/class_data.py.

An archive fits one Java and one class path, in its order. A JVM ignores an archive that does not
fit, and starts without it.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from sparklag_jobs.broker import maven
from sparklag_jobs.broker.maven import find_java
from sparklag_jobs.errors import JavaMissing

# An archive that does not fit must not write to a user's log.
_QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


class ArchiveNotMade(RuntimeError):
    """A JVM's class data could not be stored; the JVM starts without them."""


class ClassDataArchive:
    """The archive of the programs that `java` runs with `class_path`, in which a folder stands for
    its jars, like `folder/*`."""

    def __init__(
        self, name: str, java: Path, class_path: Sequence[Path], cache_dir: Path | None = None
    ) -> None:
        self._name = name
        # This file changes with each release of Java.
        modules = java.resolve().parents[1] / "lib" / "modules"
        jars = (sorted(path.glob("*.jar")) if path.is_dir() else [path] for path in class_path)
        self.files = [modules, *chain.from_iterable(jars)]
        self._folder = (cache_dir or maven.default_cache_dir()) / "class-data"

    @property
    def path(self) -> Path:
        digest = hashlib.sha256(_describe(self.files).encode()).hexdigest()[:12]
        return self._folder / f"{self._name}-{digest}.jsa"

    def options(self) -> tuple[str, ...]:
        """JVM options for the archive; none if it does not exist."""
        return (f"-XX:SharedArchiveFile={self.path}", *_QUIET) if self._is_whole() else ()

    def make(self, run: Callable[[Sequence[str]], object]) -> bool:
        """Make a missing archive; return whether that was needed. `run` runs one JVM with these
        options to its end: the archive has the classes that this JVM loaded.

        Safe in several processes at once: one makes it, the others wait. Raises errors of `run`,
        and ArchiveNotMade.
        """
        if self._is_whole():
            return False
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with maven.locked(self._folder / f"{self._name}.lock"):
                if self._is_whole():
                    return False
                with TemporaryDirectory(prefix=".making-", dir=self._folder) as scratch:
                    written = Path(scratch) / "archive"
                    run((f"-XX:ArchiveClassesAtExit={written}", *_QUIET))
                    if not written.exists():
                        raise ArchiveNotMade(f"Java has not written the class data of {self._name}")
                    self._remove_stale()
                    size = written.stat().st_size
                    written.rename(self.path)
                    self._description.write_text(f"{_describe(self.files)}{size}\n")
        except OSError as error:
            raise ArchiveNotMade(f"cannot keep class data in {self._folder}: {error}") from error
        return True

    @property
    def _description(self) -> Path:
        """The file written last: the files of the class path, and the size of the archive."""
        return self.path.with_suffix(".files")

    def _is_whole(self) -> bool:
        """Checks the size: the system kills a JVM that maps an incomplete archive."""
        try:
            size = self._description.read_text().splitlines()[-1]
            return size == str(self.path.stat().st_size)
        except (OSError, IndexError):
            return False

    def _remove_stale(self) -> None:
        """Remove archives whose files changed or are gone: no JVM would use them."""
        for description in self._folder.glob("*.files"):
            lines = description.read_text().splitlines()[:-1]
            if any(line != _state(Path(line.rsplit(" ", 2)[0])) for line in lines):
                description.unlink(missing_ok=True)
                description.with_suffix(".jsa").unlink(missing_ok=True)


def kafka_class_data() -> ClassDataArchive:
    """The archive of a broker. Raises JavaMissing, DownloadFailed."""
    return ClassDataArchive("kafka", find_java(), maven.kafka_jars())


def spark_class_data(connector: Sequence[Path]) -> ClassDataArchive:
    """The archive of a driver with the Kafka connector. Raises JavaMissing.

    Java uses no archive if Spark's configuration folder, which is also on the class path, has
    files.
    """
    return ClassDataArchive("spark", find_java(), [*connector, maven.spark_jars_dir()])


def connector_options(connector: Sequence[Path]) -> dict[str, str]:
    """Spark options of a driver with these jars on its class path, which starts from its class-data
    archive, if there is one."""
    options = {"spark.driver.extraClassPath": ":".join(map(str, connector))}
    # Spark itself reports a missing Java.
    with contextlib.suppress(JavaMissing):
        if class_data := spark_class_data(connector).options():
            quoted = " ".join(f'"{option}"' for option in class_data)
            options["spark.driver.defaultJavaOptions"] = quoted
    return options


def _describe(files: Iterable[Path]) -> str:
    return "".join(f"{_state(file)}\n" for file in files)


def _state(file: Path) -> str:
    try:
        state = file.stat()
    except OSError:
        return f"{file} - -"
    return f"{file} {state.st_size} {state.st_mtime_ns}"
