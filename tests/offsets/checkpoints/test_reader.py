"""Looking at one checkpoint again and again, while somebody writes, deletes or replaces it."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from sparklag_offsets.checkpoints import (
    CheckpointPosition,
    CheckpointReader,
    CheckpointStore,
    files,
    read_checkpoint,
)
from sparklag_offsets.checkpoints.files import LocalFiles
from sparklag_offsets.errors import (
    CheckpointAway,
    CheckpointGone,
    CheckpointNotFound,
    MalformedCheckpoint,
    UnsupportedCheckpoint,
)
from sparklag_schemas import Offsets
from tests.offsets.checkpoints.folders import COMMIT, Checkpoint, batches, v1, v2


def polled(reader: CheckpointReader) -> CheckpointPosition:
    position = reader.poll()
    assert position is not None
    return position


def processed(position: CheckpointPosition) -> dict[int, Offsets | None]:
    return {source.source: source.processed for source in position.sources}


def planned(position: CheckpointPosition) -> dict[int, Offsets | None]:
    return {source.source: source.planned for source in position.sources}


def at(offset: int) -> Offsets:
    return {"orders": {0: offset}}


def test_times_are_those_of_the_files(checkpoint: Checkpoint) -> None:
    checkpoint.run(0, at(5))
    checkpoint.plan(1, at(6))
    os.utime(checkpoint.folder / "commits/0", ns=(0, 1_790_000_000_123_000_000))
    os.utime(checkpoint.folder / "offsets/1", ns=(0, 1_790_000_001_456_000_000))
    position = polled(checkpoint.reader())
    assert position.committed_at_ms == 1_790_000_000_123
    assert position.planned_at_ms == 1_790_000_001_456


def test_no_change_costs_no_read(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_TIME_RESOLUTION_S", 0.05)
    checkpoint.run(0, at(5))
    reader = checkpoint.reader()
    polled(reader)
    time.sleep(0.1)
    assert reader.poll() is None
    # Without the right to list or read, only stat is left. (Root may do all.)
    shutil.move(checkpoint.folder / "metadata", checkpoint.folder / "elsewhere")
    (checkpoint.folder / "offsets/0").write_bytes(b"never looked at")
    assert reader.poll() is None


def test_a_change_within_the_grain_of_the_folders_time_is_observed(checkpoint: Checkpoint) -> None:
    checkpoint.run(0, at(5))
    reader = checkpoint.reader()
    polled(reader)
    before = os.stat(checkpoint.folder / "commits")
    checkpoint.run(1, at(9))
    # As if it had come within the same tick of the file system's clock.
    for log in ("commits", "offsets"):
        os.utime(checkpoint.folder / log, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert processed(polled(reader)) == {0: at(9)}


def test_a_folder_whose_time_reports_nothing_is_listed_now_and_then(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    # NFS gives out what it knows of a folder for up to a minute.
    monkeypatch.setattr(files, "_TIME_RESOLUTION_S", 0.0)
    monkeypatch.setattr(files, "_MAX_AGE_S", 0.2)
    checkpoint.run(0, at(5))
    reader = checkpoint.reader()
    polled(reader)
    assert reader.poll() is None
    stamps = {log: os.stat(checkpoint.folder / log).st_mtime_ns for log in ("commits", "offsets")}
    checkpoint.run(1, at(9))
    for log, stamp in stamps.items():
        os.utime(checkpoint.folder / log, ns=(stamp, stamp))
    time.sleep(0.25)
    assert processed(polled(reader)) == {0: at(9)}


def test_many_batches_between_two_looks_are_one_step(checkpoint: Checkpoint) -> None:
    reader = checkpoint.reader()
    checkpoint.run(0, at(0))
    polled(reader)
    for number in range(1, 150):
        checkpoint.run(number, at(number))
    checkpoint.purge(100)
    checkpoint.plan(150, at(150))
    position = polled(reader)
    assert batches(position) == (149, 150)
    assert (processed(position), planned(position)) == ({0: at(149)}, {0: at(150)})


def test_numbers_are_no_text(checkpoint: Checkpoint) -> None:
    for number in (9, 10, 99, 100):
        checkpoint.run(number, at(number))
    assert batches(polled(checkpoint.reader())) == (100, None)


def test_a_commit_whose_offsets_are_gone_counts_for_nothing(checkpoint: Checkpoint) -> None:
    for number in range(3):
        checkpoint.run(number, at(number))
    checkpoint.remove("offsets/2")
    position = polled(checkpoint.reader())
    assert (batches(position), processed(position)) == ((1, None), {0: at(1)})


def test_a_checkpoint_without_any_offsets_of_its_commits_is_broken(checkpoint: Checkpoint) -> None:
    checkpoint.commit(3)
    with pytest.raises(MalformedCheckpoint, match="no committed batch still has its offsets"):
        checkpoint.reader().poll()


def test_a_source_without_an_offset_stays_where_it_was(checkpoint: Checkpoint) -> None:
    checkpoint.run(0, at(5), None)
    checkpoint.run(1, at(6), {"late": {0: 3}})
    checkpoint.run(2, None, {"late": {0: 4}})
    checkpoint.run(3, None, None)
    expected = {0: at(6), 1: {"late": {0: 4}}}
    # In the first look from the files, later from memory.
    reader = checkpoint.reader()
    assert processed(polled(reader)) == expected
    checkpoint.run(4, None, {"late": {0: 9}})
    assert processed(polled(reader)) == {**expected, 1: {"late": {0: 9}}}


def test_how_far_back_is_read_for_that_is_bounded(checkpoint: Checkpoint) -> None:
    checkpoint.run(0, at(5))
    for number in range(1, 40):
        checkpoint.run(number, None)
    assert processed(polled(checkpoint.reader())) == {0: None}


def test_a_source_that_appears_later_is_another_source(checkpoint: Checkpoint) -> None:
    reader = checkpoint.reader()
    checkpoint.run(0, at(5), None)
    assert polled(reader).kafka == {0}
    checkpoint.run(1, at(5), {"late": {0: 1}})
    assert polled(reader).kafka == {0, 1}


def test_a_kafka_source_without_a_topic_is_one_all_the_same(checkpoint: Checkpoint) -> None:
    reader = checkpoint.reader()
    checkpoint.run(0, {})
    assert polled(reader).kafka == set()
    checkpoint.run(1, at(1))
    assert polled(reader).kafka == {0}
    checkpoint.run(2, {})
    last = polled(reader)
    assert last.kafka == {0}
    assert processed(last) == {0: {}}


def test_a_named_source_never_takes_the_position_of_another(checkpoint: Checkpoint) -> None:
    reader = checkpoint.reader()
    checkpoint.write("offsets/0", v2({"b": {"x": {0: 1}}, "c": {"y": {0: 2}}}))
    checkpoint.commit(0)
    assert processed(polled(reader)) == {0: {"x": {0: 1}}, 1: {"y": {0: 2}}}
    checkpoint.write("offsets/1", v2({"a": {"z": {0: 3}}, "b": {"x": {0: 4}}}))
    between = polled(reader)
    assert batches(between) == (0, 1)
    assert planned(between) == {0: None, 1: None}
    checkpoint.commit(1)
    assert processed(polled(reader)) == {0: {"z": {0: 3}}, 1: {"x": {0: 4}}}


def test_a_source_named_by_a_number_can_be_removed(checkpoint: Checkpoint) -> None:
    reader = checkpoint.reader()
    checkpoint.write("offsets/0", v2({"1": {"x": {0: 1}}, "2": {"y": {0: 2}}}, named=True))
    checkpoint.commit(0)
    polled(reader)
    checkpoint.write("offsets/1", v2({"2": {"y": {0: 3}}}, named=True))
    checkpoint.commit(1)
    assert processed(polled(reader)) == {0: {"y": {0: 3}}}


@pytest.mark.parametrize("content", [b"", v1(at(9))[:-1], v1(at(9))[:20]])
def test_a_half_written_plan_is_not_there_until_it_is_whole(
    checkpoint: Checkpoint, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The folders themselves say that nothing changes.
    monkeypatch.setattr(files, "_TIME_RESOLUTION_S", 0.0)
    reader = checkpoint.reader()
    checkpoint.run(0, at(5))
    polled(reader)
    (checkpoint.folder / "offsets/1").write_bytes(content)
    for _ in range(2):
        assert reader.poll() is None
    # Written on in place: nothing of it shows in the folder.
    (checkpoint.folder / "offsets/1").write_bytes(v1(at(9)))
    assert planned(polled(reader)) == {0: at(9)}


def test_what_stays_half_written_is_an_error_until_a_newer_file_comes(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_TIME_RESOLUTION_S", 0.0)
    reader = checkpoint.reader()
    checkpoint.run(0, at(5))
    polled(reader)
    (checkpoint.folder / "offsets/1").write_bytes(b"")
    for _ in range(2):
        assert reader.poll() is None
    for _ in range(2):
        with pytest.raises(MalformedCheckpoint, match="offsets/1 is empty"):
            reader.poll()
    checkpoint.plan(2, at(7))
    assert planned(polled(reader)) == {0: at(7)}


def test_a_broken_committed_batch_leaves_the_one_before_then_fails(checkpoint: Checkpoint) -> None:
    checkpoint.run(0, at(5))
    checkpoint.run(1, at(6))
    (checkpoint.folder / "offsets/1").write_bytes(v1(at(6))[:-4])
    reader = checkpoint.reader()
    assert processed(polled(reader)) == {0: at(5)}
    assert reader.poll() is None
    with pytest.raises(MalformedCheckpoint, match="offsets/1: the line of source 0 is cut off"):
        reader.poll()


@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_file_cut_between_two_sources_is_half_written(
    checkpoint: Checkpoint, is_committed: bool, end: bytes
) -> None:
    reader = checkpoint.reader()
    checkpoint.run(0, at(5), {"b": {0: 1}})
    polled(reader)
    checkpoint.write("offsets/1", v1(at(6)) + end)
    if is_committed:
        checkpoint.commit(1)
    for _ in range(2):
        assert reader.poll() is None
    with pytest.raises(MalformedCheckpoint, match="offsets/1 is cut off: source 1 is not in it"):
        reader.poll()


@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize("was_polled", [False, True])
def test_a_file_cut_anywhere_never_gives_a_wrong_position(
    checkpoint: Checkpoint, is_committed: bool, was_polled: bool
) -> None:
    before: tuple[Offsets, Offsets] = (at(5), {"b": {0: 1}})
    after: tuple[Offsets, Offsets] = (at(66), {"b": {0: 12, 1: 3}})
    content = v1(*after)
    checkpoint.run(0, *before)
    for cut in range(len(content)):
        reader = checkpoint.reader()
        if was_polled:
            polled(reader)
        (checkpoint.folder / "offsets/1").write_bytes(content[:cut])
        if is_committed:
            checkpoint.commit(1)
        position = reader.poll()
        if not was_polled:
            assert position is not None
            assert processed(position) == dict(enumerate(before))
            assert planned(position) == {0: None, 1: None}
        else:
            assert position is None
        (checkpoint.folder / "offsets/1").unlink()
        (checkpoint.folder / "commits/1").unlink(missing_ok=True)


def test_an_empty_commit_is_not_yet_written(checkpoint: Checkpoint) -> None:
    reader = checkpoint.reader()
    checkpoint.run(0, at(5))
    checkpoint.plan(1, at(6))
    (checkpoint.folder / "commits/1").write_bytes(b"")
    assert batches(polled(reader)) == (0, 1)
    (checkpoint.folder / "commits/1").write_bytes(COMMIT)
    assert batches(polled(reader)) == (1, None)


def test_other_files_of_spark_are_skipped(checkpoint: Checkpoint) -> None:
    checkpoint.run(0, at(5))
    for name in (".0.crc", ".1.crc", ".2.8a1f.tmp", "3.compact", "x"):
        for log in ("offsets", "commits"):
            (checkpoint.folder / log / name).write_bytes(b"\0")
    assert batches(polled(checkpoint.reader())) == (0, None)


def test_another_query_s_checkpoint_in_the_same_place_is_noticed(checkpoint: Checkpoint) -> None:
    reader = checkpoint.reader()
    for number in range(4):
        checkpoint.run(number, at(number + 10), 7)
    first = polled(reader)
    shutil.rmtree(checkpoint.folder)
    checkpoint.create()
    # As far as the other, which has more sources.
    for number in range(4):
        checkpoint.run(number, {"new": {0: number}})
    second = polled(reader)
    assert second.query_id == checkpoint.query_id != first.query_id
    assert processed(second) == {0: {"new": {0: 3}}}


def test_commits_that_were_taken_back_count_once_they_stay_so(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_TIME_RESOLUTION_S", 0.0)
    reader = checkpoint.reader()
    for number in range(4):
        checkpoint.run(number, at(number))
    polled(reader)
    checkpoint.remove("commits/3", "commits/2", "offsets/3", "offsets/2")
    assert reader.poll() is None
    position = polled(reader)
    assert (batches(position), processed(position)) == ((1, None), {0: at(1)})


def test_a_checkpoint_that_is_being_deleted_never_goes_back(checkpoint: Checkpoint) -> None:
    reader = checkpoint.reader()
    for number in range(5):
        checkpoint.run(number, at(number))
    polled(reader)
    for number in (4, 3, 2, 1, 0):
        checkpoint.remove(f"commits/{number}")
        assert reader.poll() is None
    checkpoint.remove("metadata")
    with pytest.raises(CheckpointGone, match="is being deleted"):
        reader.poll()
    shutil.rmtree(checkpoint.folder)
    for _ in range(2):
        with pytest.raises(CheckpointGone, match="the checkpoint was deleted"):
            reader.poll()
    checkpoint.create()
    checkpoint.run(0, at(77))
    assert processed(polled(reader)) == {0: at(77)}


def test_after_an_error_the_position_is_returned_again(checkpoint: Checkpoint) -> None:
    reader = checkpoint.reader()
    checkpoint.run(0, at(5))
    first = polled(reader)
    away = checkpoint.folder.with_name("away")
    checkpoint.folder.rename(away)
    with pytest.raises(CheckpointGone):
        reader.poll()
    away.rename(checkpoint.folder)
    assert polled(reader) == first


def test_a_poll_while_spark_purges_and_writes_is_always_right(checkpoint: Checkpoint) -> None:
    """A writer in another thread, as fast as it can; each position must be one that was."""
    stop = threading.Event()
    newest = 0

    def write() -> None:
        nonlocal newest
        number = 0
        while not stop.is_set():
            checkpoint.plan(number, at(number * 10))
            checkpoint.commit(number)
            newest = number
            checkpoint.purge(number - 2)
            number += 1

    writer = threading.Thread(target=write)
    reader = checkpoint.reader()
    writer.start()
    try:
        last = -1
        deadline = time.monotonic() + 0.4
        while time.monotonic() < deadline or last < 5:
            floor = newest
            position = reader.poll()
            if position is None or position.batch_id is None:
                continue
            assert processed(position) == {0: at(position.batch_id * 10)}
            assert position.batch_id >= max(last, floor - 1)
            last = position.batch_id
            if position.planned_batch_id is not None:
                assert planned(position) == {0: at(position.planned_batch_id * 10)}
                assert position.planned_batch_id > position.batch_id
    finally:
        stop.set()
        writer.join()


def test_what_is_no_checkpoint_is_refused_in_one_line(tmp_path: Path) -> None:
    store = CheckpointStore({}, 10.0)
    (tmp_path / "empty").mkdir()
    (tmp_path / "other" / "sub").mkdir(parents=True)
    (tmp_path / "logs" / "commits").mkdir(parents=True)
    (tmp_path / "file").write_text("x")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "metadata").write_text('{"id":')
    for name in ("missing", "empty", "other", "logs", "file"):
        with pytest.raises(CheckpointNotFound) as caught:
            read_checkpoint(store, str(tmp_path / name))
        assert str(caught.value) == (
            f"{tmp_path}/{name}: there is no checkpoint here: expected the checkpointLocation of a"
            " query, a folder with the file metadata, or a pattern that finds those in this"
            f" folder: {tmp_path}/{name}/*"
        )
    with pytest.raises(MalformedCheckpoint, match="/broken/metadata holds no query id"):
        read_checkpoint(store, str(tmp_path / "broken"))


@pytest.mark.parametrize("metadata", [None, b"", b'{"id":'])
def test_a_checkpoint_without_its_querys_id_is_read_and_not_watched(
    checkpoint: Checkpoint, metadata: bytes | None
) -> None:
    checkpoint.run(6, at(400))
    checkpoint.run(7, at(500))
    checkpoint.remove("metadata")
    reason = "would go on with a new query id, Spark 4.2 on refuses to start"
    if metadata is not None:
        checkpoint.write("metadata", metadata)
        reason = "holds no query id: it is cut off, or not Spark's; no Spark starts from it"
    store = CheckpointStore({}, 10.0)
    assert store.find(f"{checkpoint.folder.parent}/*") == [str(checkpoint.folder)]
    position = read_checkpoint(store, str(checkpoint.folder))
    assert (position.query_id, batches(position), processed(position)) == (
        "",
        (7, None),
        {0: at(500)},
    )
    assert reason in (position.id_problem or "")
    with pytest.raises(MalformedCheckpoint, match=f"^{checkpoint.folder}/metadata .*{reason}"):
        checkpoint.reader().poll()


def test_a_format_from_the_future_is_refused_at_once(checkpoint: Checkpoint) -> None:
    checkpoint.run(0, at(5))
    checkpoint.write("offsets/1", b"v3\n{}\n0")
    with pytest.raises(UnsupportedCheckpoint, match="offsets/1 has format v3"):
        checkpoint.reader().poll()


def test_read_once_a_broken_file_is_an_error_after_a_moment(checkpoint: Checkpoint) -> None:
    store = CheckpointStore({}, 10.0)
    checkpoint.run(0, at(5))
    (checkpoint.folder / "offsets/1").write_bytes(b"v1\n")
    with pytest.raises(MalformedCheckpoint, match="offsets/1 is cut off"):
        read_checkpoint(store, str(checkpoint.folder))
    checkpoint.plan(1, at(6))
    (checkpoint.folder / "commits/1").write_bytes(b"v1\n{")
    with pytest.raises(MalformedCheckpoint, match="commits/1 is cut off"):
        read_checkpoint(store, str(checkpoint.folder))


def test_a_folder_without_the_right_to_read_is_named(checkpoint: Checkpoint) -> None:
    # Root may read all; what has no name on this system nobody can.
    nowhere = checkpoint.folder / ("x" * 300)
    with pytest.raises(CheckpointAway, match=f"^{nowhere}: File name too long"):
        CheckpointStore({}, 30).reader(str(nowhere)).poll()


def test_a_folder_that_is_a_link_counts_as_none(checkpoint: Checkpoint) -> None:
    checkpoint.run(0, at(5))
    commits = checkpoint.folder / "commits"
    commits.rename(checkpoint.folder.parent / "elsewhere")
    commits.symlink_to(checkpoint.folder.parent / "elsewhere")
    assert polled(checkpoint.reader()).batch_id is None


@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_no_file_is_read_through_a_folder_that_is_a_link(checkpoint: Checkpoint, log: str) -> None:
    checkpoint.run(0, at(5))
    elsewhere = checkpoint.folder.parent / "elsewhere"
    (checkpoint.folder / log).rename(elsewhere)
    (checkpoint.folder / log).symlink_to(elsewhere)
    with pytest.raises(FileNotFoundError):
        LocalFiles(str(checkpoint.folder), None).read(f"{log}/0")


def test_no_link_is_read_where_open_would_follow_it(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparklag_offsets.checkpoints.files._NO_FOLLOW", 0)
    monkeypatch.setattr("sparklag_offsets.checkpoints.files._OPEN_FLAGS", os.O_RDONLY)
    checkpoint.run(0, at(5))
    (checkpoint.folder / "offsets/1").symlink_to("0")
    files = LocalFiles(str(checkpoint.folder), None)
    assert files.read("offsets/0")
    with pytest.raises(FileNotFoundError):
        files.read("offsets/1")


def test_pipes_folders_and_huge_files_are_no_files_of_a_log(checkpoint: Checkpoint) -> None:
    files = LocalFiles(str(checkpoint.folder), None)
    os.mkfifo(checkpoint.folder / "offsets/0")
    (checkpoint.folder / "offsets/1").mkdir()
    for name in ("offsets/0", "offsets/1"):
        with pytest.raises(FileNotFoundError):
            files.read(name)
    checkpoint.write("offsets/2", b"")
    os.truncate(checkpoint.folder / "offsets/2", 256 * 1024 * 1024)
    with pytest.raises(MalformedCheckpoint, match="has more than 8,388,608 bytes"):
        files.read("offsets/2")
