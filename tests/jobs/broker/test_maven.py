"""Java, and jars by coordinates."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from sparklag_jobs.broker.maven import (
    Module,
    default_cache_dir,
    find_java,
    resolve_jars,
    spark_kafka_jars,
)
from sparklag_jobs.errors import DownloadFailed, JavaMissing
from tests.commands import succeed

SMALL = Module("org.slf4j", "slf4j-api", "2.0.16")


def resolving(cache_dir: Path, first: str = "") -> list[str]:
    program = (
        f"import sys; from pathlib import Path; {first}"
        "from sparklag_jobs.broker.maven import Module, resolve_jars;"
        "print(resolve_jars([Module(*sys.argv[2:])], cache_dir=Path(sys.argv[1])))"
    )
    module = (SMALL.organisation, SMALL.name, SMALL.revision)
    return [sys.executable, "-c", program, str(cache_dir), *module]


@pytest.mark.spark
def test_the_connector_comes_without_what_spark_has() -> None:
    names = [jar.name for jar in spark_kafka_jars()]
    assert any(name.startswith("spark-sql-kafka-0-10_") for name in names)
    assert any(name.startswith("kafka-clients-") for name in names)
    assert not [name for name in names if name.startswith(("hadoop-client", "slf4j", "scala-lib"))]


@pytest.mark.kafka
def test_two_processes_at_once_get_the_same_whole_set(tmp_path: Path) -> None:
    command = resolving(tmp_path)
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [process.communicate(timeout=120)[0] for process in both]
    assert printed[0] == printed[1]
    assert "slf4j-api-2.0.16.jar" in printed[0]
    assert not list((tmp_path / "jars").glob(".fetching-*"))


@pytest.mark.kafka
def test_without_pyspark_spark_home_fetches_and_the_cache_needs_neither(tmp_path: Path) -> None:
    command = resolving(tmp_path, "sys.modules['pyspark'] = None;")
    with_home, without = (
        succeed(*command, env={**os.environ, "SPARK_HOME": home})
        for home in (str(Path(pyspark.__file__).parent), "")
    )
    assert "slf4j-api-2.0.16.jar" in with_home
    assert without == with_home, "it is cached"


@pytest.mark.kafka
def test_what_is_not_there_is_reported_in_a_line_with_ivys_last_words(tmp_path: Path) -> None:
    missing = Module("org.example.sparklag", "no-such-thing", "1.0")
    with pytest.raises(DownloadFailed) as caught:
        resolve_jars([missing], cache_dir=tmp_path)
    first, *rest = str(caught.value).splitlines()
    assert "cannot fetch org.example.sparklag:no-such-thing:1.0" in first
    assert any("no-such-thing" in line for line in rest)
    assert not [path for path in (tmp_path / "jars").iterdir() if path.is_dir()]


def test_a_cache_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DownloadFailed, match="cannot keep jars in"):
        resolve_jars([SMALL], cache_dir=tmp_path / "file")


def test_the_cache_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / "sparklag"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache_dir() == Path.home() / ".cache" / "sparklag"


@pytest.fixture(autouse=True)
def _forget_what_was_detected() -> None:
    find_java.cache_clear()


@pytest.mark.parametrize("text", ['openjdk version "21.0.3" 2024-04-16', "something else"])
def test_java_home_precedes_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    _pretend_java(tmp_path / "bin", text)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == tmp_path / "bin" / "java"


@pytest.mark.parametrize(
    ("text", "version"), [("1.8.0_402", 8), ("25.0.1", 25), ("25-ea", 25)], ids=str
)
def test_a_java_too_old_or_too_new_is_named_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, version: int
) -> None:
    _pretend_java(tmp_path / "bin", f'java version "{text}"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match=rf"is Java {version}: install Java 17 to 22"):
        find_java()


@pytest.mark.parametrize(
    ("home", "line"),
    [("", "no java in PATH: install Java 17"), ("nothing", "nothing/bin/java does not run")],
)
def test_a_java_that_is_not_there_is_one_line_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str, line: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", home)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing, match=line) as caught:
        find_java()
    assert "\n" not in str(caught.value)


def _pretend_java(folder: Path, text: str) -> None:
    folder.mkdir(parents=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    java.chmod(0o755)
