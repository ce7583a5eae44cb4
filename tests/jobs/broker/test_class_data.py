"""Class-data archives, on a small program: Ivy, which ships inside Spark."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts.class_data import ArchiveNotMade, ClassDataArchive, kafka_class_data
from sparklag_jobs.broker.maven import find_java, spark_jars_dir
from tests.local_kafka import LocalKafka
from tests.processes import maps_file, processes_naming

pytestmark = pytest.mark.kafka
_FROM_ARCHIVE = "org.apache.ivy.Main source: shared objects file (top)"


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    (ivy,) = spark_jars_dir().glob("ivy-*.jar")
    return Path(shutil.copy(ivy, tmp_path))


def _archive(jar: Path) -> ClassDataArchive:
    return ClassDataArchive("ivy", find_java(), [jar], jar.parent / "cache")


def _run(jar: Path, options: Sequence[str]) -> str:
    command = [str(find_java()), *options, "-cp", str(jar), "org.apache.ivy.Main", "-version"]
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    ).stdout


def test_it_is_made_once_and_used(jar: Path) -> None:
    archive = _archive(jar)
    assert archive.options() == ()
    assert archive.make(lambda options: _run(jar, options))
    assert not archive.make(lambda options: pytest.fail("it is there"))
    assert _FROM_ARCHIVE in _run(jar, [*archive.options(), "-Xlog:class+load"])


def test_one_that_does_not_fit_or_is_broken_changes_nothing_and_reports_nothing(jar: Path) -> None:
    archive = _archive(jar)
    archive.make(lambda options: _run(jar, options))
    expected, options, size = _run(jar, ()), archive.options(), archive.path.stat().st_size
    archive.path.chmod(0o600)
    archive.path.write_bytes(bytes(size))
    assert _run(jar, options) == expected
    archive.path.write_bytes(bytes(size // 2))
    assert archive.options() == ()
    archive.path.unlink()
    assert _run(jar, options) == expected
    archive.make(lambda options: _run(jar, options))
    jar.touch()
    assert archive.options() == ()
    assert _run(jar, options) == expected


def test_a_new_one_removes_those_whose_class_path_has_changed(jar: Path) -> None:
    archive = _archive(jar)
    archive.make(lambda options: _run(jar, options))
    before = archive.path
    jar.touch()
    archive.make(lambda options: _run(jar, options))
    assert archive.path != before
    assert sorted(archive.path.parent.iterdir()) == sorted(
        [archive.path, archive.path.with_suffix(".files"), archive.path.parent / "ivy.lock"]
    )


def test_a_java_that_writes_none_is_reported(jar: Path) -> None:
    with pytest.raises(ArchiveNotMade, match="class data of ivy"):
        _archive(jar).make(lambda options: None)
    assert not list((jar.parent / "cache" / "class-data").glob(".making-*"))


def test_a_broker_starts_from_it(kafka: LocalKafka) -> None:
    archive = kafka_class_data()
    assert archive.options(), "not made: `make downloads`"
    (pid,) = processes_naming(f"{kafka.directory}/server.properties")
    assert maps_file(pid, archive.path)
