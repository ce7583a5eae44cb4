"""Finding a Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklag_jobs.broker.maven import find_java
from sparklag_jobs.errors import JavaMissing


@pytest.fixture(autouse=True)
def _forget_what_was_detected() -> None:
    find_java.cache_clear()


@pytest.mark.parametrize("reports", ['openjdk version "21.0.3" 2024-04-16', "something else"])
def test_java_home_comes_before_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reports: str
) -> None:
    _pretend_java(tmp_path / "bin", reports)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == tmp_path / "bin" / "java"


@pytest.mark.parametrize(
    ("reports", "version"), [("1.8.0_402", 8), ("25.0.1", 25), ("25-ea", 25)], ids=str
)
def test_a_java_too_old_or_too_new_is_named_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reports: str, version: int
) -> None:
    _pretend_java(tmp_path / "bin", f'java version "{reports}"')
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


def _pretend_java(folder: Path, reports: str) -> None:
    folder.mkdir(parents=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho '{reports}' >&2\n")
    java.chmod(0o755)
