"""The checkpoints that Spark tests itself with, of 2.1 to 4.2: what Spark reads, we read."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparklag_jobs.broker.maven import Module, resolve_jars
from sparklag_offsets.checkpoints import CheckpointStore, read_checkpoint
from sparklag_offsets.checkpoints.offset_log import parse_commit, parse_metadata, parse_offsets

# Downloads Spark's own tests, once: 53 MB.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.slow]

_RESOURCES = "structured-streaming/"


def spark_tests() -> list[Path]:
    return resolve_jars(
        [Module("org.apache.spark", "spark-sql_2.13", "4.2.0", archive="tests.jar")]
    )


@pytest.fixture(scope="module")
def resources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of Spark's test resources for streaming, without state."""
    folder = tmp_path_factory.mktemp("spark-resources")
    (jar,) = spark_tests()
    with zipfile.ZipFile(jar) as archive:
        names = [
            name
            for name in archive.namelist()
            if name.startswith(_RESOURCES) and "/state/" not in name and not name.endswith("/")
        ]
        archive.extractall(folder, names)
    return folder / _RESOURCES


def plain_lines(file: Path) -> list[str]:
    """Lines as Spark reads a file: by lines, whatever is at its end."""
    return file.read_text(encoding="utf-8").splitlines()


def plain_kafka(line: str) -> Any:
    """The offsets in a line, where they have the shape of Kafka's."""
    value = json.loads(line) if line.startswith("{") else None
    if isinstance(value, dict) and value and all(isinstance(v, dict) for v in value.values()):
        return {topic: {int(p): n for p, n in ends.items()} for topic, ends in value.items()}
    return None


def files_of(resources: Path, log: str) -> Iterator[Path]:
    for file in sorted(resources.rglob(f"{log}/*")):
        if file.name.isdigit():
            yield file


def test_every_offsets_file_has_the_sources_that_spark_finds_in_it(resources: Path) -> None:
    files = [*files_of(resources, "offsets"), resources / "offset-log-version-2.1.0" / "0"]
    newlines = 0
    for file in (*files, *(resources / "offset-map").iterdir()):
        version, _, *lines = plain_lines(file)
        parsed = parse_offsets(file.read_bytes(), str(file))
        if version == "v2":
            lines = [line.partition(":")[2] for line in sorted(lines)]
        result = [line.kafka for line in parsed.lines.values()]
        assert result == [plain_kafka(line) for line in lines], file
        assert [line.is_absent for line in parsed.lines.values()] == [x == "-" for x in lines]
        newlines += file.read_bytes().endswith(b"\n")
    assert len(files) > 90
    assert newlines >= 5


def test_every_commit_is_read(resources: Path) -> None:
    files = [*files_of(resources, "commits"), *resources.glob("testCommitLog*/testCommitLog")]
    for file in files:
        parse_commit(file.read_bytes(), str(file))
    assert {plain_lines(file)[0] for file in files} == {"v1", "v2"}
    assert len(files) > 90


def test_every_query_is_known_by_its_id(resources: Path) -> None:
    files = sorted(resources.glob("checkpoint-*/metadata"))
    for file in files:
        assert parse_metadata(file.read_bytes(), str(file)) == json.loads(file.read_text())["id"]
    assert len(files) > 20


def test_every_checkpoint_has_its_newest_batch_that_is_committed(resources: Path) -> None:
    folders = {file.parents[1] for file in files_of(resources, "commits")}
    store = CheckpointStore({}, timeout_s=30)
    for folder in sorted(folders):
        if not (folder / "metadata").is_file():
            continue
        planned = {int(file.name) for file in files_of(folder, "offsets")}
        committed = {int(file.name) for file in files_of(folder, "commits")}
        position = read_checkpoint(store, str(folder))
        assert position.batch_id == max(planned & committed), folder
        later = {number for number in planned if number > position.batch_id}
        assert position.planned_batch_id == max(later, default=None), folder
    assert len(folders) > 20
