"""Finding checkpoints, and the errors of a store that cannot be used."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from fsspec.exceptions import FSTimeoutError
from fsspec.implementations.memory import MemoryFileSystem

from sparklag_offsets.checkpoints import CheckpointStore, read_checkpoint
from sparklag_offsets.checkpoints.filesystems import explain_store_failure
from sparklag_offsets.errors import CheckpointAway, CheckpointError, CheckpointNotFound
from tests.offsets.checkpoints.folders import Checkpoint, check_is_sample, upload

STORE = CheckpointStore({}, 10.0)


def refused(store: CheckpointStore, location: str) -> str:
    with pytest.raises(CheckpointAway) as caught:
        read_checkpoint(store, location)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def memory() -> Iterator[str]:
    root = f"/{uuid.uuid4().hex}"
    filesystem = MemoryFileSystem()
    for name in ("union_two_kafka", "batch_fails"):
        upload(filesystem, name, f"{root}/cps/{name}")
    filesystem.pipe(f"{root}/cps/other/file", b"x")
    filesystem.pipe(f"{root}/cps/.hidden/metadata", b"{}")
    yield f"memory:/{root}"
    filesystem.rm(root, recursive=True)


def test_a_path_is_its_own_answer_whether_it_is_there_or_not() -> None:
    assert STORE.find("file:/not/there/") == ["/not/there"]
    assert STORE.find("s3a://bucket/not/there/") == ["s3://bucket/not/there"]


def test_a_pattern_finds_the_checkpoints_among_all_that_matches(tmp_path: Path) -> None:
    for name in ("b", "a", "etl-1", "etl-2"):
        Checkpoint(tmp_path / "cps" / name)
    Checkpoint(tmp_path / "teams" / "x" / "cps" / "q")
    (tmp_path / "cps" / "not-one").mkdir()
    (tmp_path / "cps" / "file").write_text("x")
    Checkpoint(tmp_path / "cps" / ".hidden")
    for pattern, expected in {
        "cps/*": ["cps/a", "cps/b", "cps/etl-1", "cps/etl-2"],
        "cps/etl-*/": ["cps/etl-1", "cps/etl-2"],
        "cps/*1": ["cps/etl-1"],
        "*/*/cps/*": ["teams/x/cps/q"],
        "te*s/x/cps/q": ["teams/x/cps/q"],
        "cps/.*": ["cps/.hidden"],
    }.items():
        assert STORE.find(f"file:{tmp_path}/{pattern}") == [f"{tmp_path}/{e}" for e in expected]


def test_a_pattern_may_begin_with_a_drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where a folder has its name
    Checkpoint(tmp_path / "C:" / "cps" / "a")
    assert STORE.find("file:///C:/cps/*") == STORE.find(r"C:\cps\*") == ["C:/cps/a"]


def test_only_the_star_is_special_in_a_pattern(tmp_path: Path) -> None:
    Checkpoint(tmp_path / "a[1]?.x")
    assert STORE.find(f"{tmp_path}/a[1]?.*") == [f"{tmp_path}/a[1]?.x"]


def test_a_relative_pattern_starts_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Checkpoint(tmp_path / "cps" / "q")
    monkeypatch.chdir(tmp_path)
    assert STORE.find("cps/*") == STORE.find("*/q") == ["cps/q"]


def test_a_pattern_that_matches_nothing_is_named(tmp_path: Path, memory: str) -> None:
    for root in (str(tmp_path), memory):
        for pattern, reason in {
            "no*": "no checkpoint matches",
            "no/*": "there is no folder",
        }.items():
            with pytest.raises(CheckpointNotFound, match=f"^{root}/{pattern[:2]}.*: {reason}"):
                STORE.find(f"{root}/{pattern}")


def test_stores_of_fsspec_are_searched_and_read_alike(memory: str) -> None:
    result = STORE.find(f"{memory}/cps/*")
    assert result == [f"{memory}/cps/batch_fails", f"{memory}/cps/union_two_kafka"]
    assert STORE.find(f"{memory}/*/batch*") == result[:1]
    for location in result:
        check_is_sample(read_checkpoint(STORE, location), os.path.basename(location))


def test_a_checkpoint_that_grows_in_a_store_is_followed(tmp_path: Path, memory: str) -> None:
    """Plain batches, then holes, then a rewind, another query, and the end."""
    filesystem = MemoryFileSystem()
    local = Checkpoint(tmp_path / "cp")
    root = f"{memory}/grown"

    def copy() -> None:
        if filesystem.exists(root):
            filesystem.rm(root, recursive=True)
        for path in local.folder.rglob("*"):
            if path.is_file():
                there = MemoryFileSystem._strip_protocol(root)
                there = f"{there}/{path.relative_to(local.folder)}"
                filesystem.pipe(there, path.read_bytes())
                # The time of the file, not of this copy.
                written = datetime.fromtimestamp(path.stat().st_mtime)
                filesystem.store[there].created = written

    reader = STORE.reader(root)

    def look() -> tuple[int | None, int | None, Any, Any] | None:
        copy()
        position = reader.poll()
        if position is None:
            return None
        (source,) = position.sources
        return position.batch_id, position.planned_batch_id, source.processed, source.planned

    def at(offset: int) -> dict[str, dict[int, int]]:
        return {"t": {0: offset}}

    local.plan(0, at(1))
    assert look() == (None, 0, None, at(1))
    assert look() is None
    local.commit(0)
    assert look() == (0, None, at(1), None)
    local.plan(1, at(2))
    assert look() == (0, 1, at(1), at(2))
    assert look() is None
    local.commit(1)
    local.run(2, at(3))
    local.plan(3, at(4))
    assert look() == (2, 3, at(3), at(4))
    local.commit(3)
    local.run(7, at(8))
    assert look() == (7, None, at(8), None)
    assert look() is None
    local.plan(11, at(12))
    assert look() == (7, 11, at(8), at(12))
    assert look() is None
    local.commit(11)
    local.plan(14, at(15))
    assert look() == (11, 14, at(12), at(15))
    local.commit(14)
    local.purge(14)
    assert look() == (14, None, at(15), None)
    local.run(15, at(16))
    local.run(16, at(17))
    assert look() == (16, None, at(17), None)
    local.remove("offsets/16", "commits/16")
    assert look() is None
    assert look() == (15, None, at(16), None)
    shutil.rmtree(local.folder)
    local.create()
    local.run(40, {"u": {0: 1}})
    assert look() == (40, None, {"u": {0: 1}}, None)
    shutil.rmtree(local.folder)
    with pytest.raises(CheckpointError, match="the checkpoint was deleted"):
        look()


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("gs://bucket/cp", r"pip install 'sparklag\[gcs\]'"),
        ("abfs://box/cp", r"pip install 'sparklag\[abfs\]'"),
        ("abfss://box@account.dfs.core.windows.net/cp", r"pip install 'sparklag\[abfs\]'"),
        ("nowhere://bucket/cp", "there is no kind of store called nowhere://"),
    ],
)
def test_what_is_missing_for_a_store_is_named_in_one_line(location: str, reason: str) -> None:
    line = refused(STORE, location)
    assert line.startswith(f"{location}: ")
    assert re.search(reason, line)


def answered(code: str) -> ClientError:
    message = "The AWS Access Key Id AKIASECRET you provided ..."
    return ClientError({"Error": {"Code": code, "Message": message}}, "GetObject")


@pytest.mark.parametrize(
    ("error", "printed"),
    [
        (answered("ExpiredToken"), "the credentials have expired (ExpiredToken)"),
        (answered("RequestTimeTooSkewed"), "the clock of this machine differs"),
        (answered("SlowDown"), "the store throttles requests"),
        (answered("SomethingNew"), "the store answered SomethingNew"),
        (NoCredentialsError(), "there are no credentials"),
        (EndpointConnectionError(endpoint_url="http://u:topsecret@x"), "cannot be reached"),
        (FSTimeoutError(), "the store did not answer within 3 s"),
        (PermissionError("Permission denied: user=topsecret"), "no right to read there"),
        (RuntimeError("Operation READ, token topsecret\nat x"), "the store refused: Operation"),
        (KeyError("topsecret"), "the store failed (KeyError)"),
    ],
)
def test_a_failure_is_one_clause_without_credentials(error: Exception, printed: str) -> None:
    options = {"key": "AKIASECRET", "client_kwargs": {"token": "topsecret"}}
    result = explain_store_failure(error, options, 3.0)
    assert result is not None
    assert printed in result
    assert "topsecret" not in result
    assert "AKIASECRET" not in result
    assert "\n" not in result


def test_a_file_that_is_not_there_is_no_failure_of_the_store() -> None:
    missing = FileNotFoundError("x")
    missing.__cause__ = answered("NoSuchKey")
    assert explain_store_failure(missing, {}, 3.0) is None
    missing.__cause__ = answered("NoSuchBucket")
    assert explain_store_failure(missing, {}, 3.0) == "there is no such bucket (NoSuchBucket)"
