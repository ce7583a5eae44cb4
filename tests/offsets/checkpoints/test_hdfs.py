"""Checkpoints in a real HDFS, by WebHDFS, under the names that Spark has for them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest

from sparklag_offsets.checkpoints import CheckpointStore, read_checkpoint
from sparklag_offsets.checkpoints.files import MAX_FILE_BYTES
from sparklag_offsets.errors import (
    CheckpointAway,
    CheckpointGone,
    CheckpointNotFound,
    MalformedCheckpoint,
)
from tests.hdfs_cluster import HdfsCluster
from tests.offsets.checkpoints.folders import COMMIT, batches, check_is_sample, upload

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def folder(hdfs: HdfsCluster) -> Iterator[str]:
    name = f"/user/spark/{uuid.uuid4().hex[:8]}"
    client = hdfs.client()
    for sample in ("batch_fails", "union_two_kafka"):
        upload(client, sample, f"{name}/cps/{sample}")
    yield name
    client.rm(name, recursive=True)


def test_every_way_to_name_a_location_reads_the_same(hdfs: HdfsCluster, folder: str) -> None:
    store = CheckpointStore(hdfs.storage(), 60.0)
    for root in (f"hdfs://{hdfs.name_node}", "hdfs://", f"webhdfs://{hdfs.webhdfs}"):
        there = read_checkpoint(store, f"{root}{folder}/cps/batch_fails/")
        check_is_sample(there, "batch_fails")
        assert (there.committed_at_ms or 0) <= (there.planned_at_ms or 0)
        assert store.find(f"{root}{folder}/*/*") == [
            f"{root}{folder}/cps/batch_fails",
            f"{root}{folder}/cps/union_two_kafka",
        ]


def test_a_checkpoint_is_followed_until_it_is_deleted(hdfs: HdfsCluster, folder: str) -> None:
    client = hdfs.client()
    location = f"hdfs://{hdfs.name_node}{folder}/cps/batch_fails"
    reader = CheckpointStore(hdfs.storage(), 60.0).reader(location)
    assert reader.poll() is not None
    assert reader.poll() is None
    client.pipe(f"{folder}/cps/batch_fails/commits/1", COMMIT)
    assert batches(reader.poll()) == (1, None)
    client.rm(f"{folder}/cps/batch_fails", recursive=True)
    with pytest.raises(CheckpointGone, match=f"^{location}: the checkpoint was deleted"):
        reader.poll()


def test_what_cannot_be_read_is_one_line_each(hdfs: HdfsCluster, folder: str) -> None:
    store = CheckpointStore(hdfs.storage(), 60.0)
    location = f"hdfs://{folder}/cps"
    with pytest.raises(CheckpointNotFound, match=f"^{location}/no: there is no checkpoint here"):
        read_checkpoint(store, f"{location}/no")
    with pytest.raises(CheckpointNotFound, match=f"^{location}: there is no checkpoint here"):
        read_checkpoint(store, location)
    with pytest.raises(CheckpointNotFound, match=re.escape(f"{location}/x*: no checkpoint")):
        store.find(f"{location}/x*")
    hdfs.client().pipe(f"{folder}/cps/batch_fails/offsets/1", bytes(MAX_FILE_BYTES + 1))
    too_long = f"batch_fails/offsets/1 has more than {MAX_FILE_BYTES:,} bytes"
    with pytest.raises(MalformedCheckpoint, match=too_long):
        read_checkpoint(store, f"{location}/batch_fails")
    hdfs.client().chmod(f"{folder}/cps", "700")
    other = CheckpointStore(hdfs.storage(user="somebody-else"), 60.0)
    with pytest.raises(CheckpointAway, match="no right to read there"):
        read_checkpoint(other, f"{location}/batch_fails")


def test_a_name_node_that_is_not_there_is_named() -> None:
    store = CheckpointStore({"hdfs": {"webhdfs": "127.0.0.1:1"}}, 10.0)
    with pytest.raises(CheckpointAway, match=r"^hdfs:///cp: .* no connection to 127.0.0.1:1$"):
        read_checkpoint(store, "hdfs:///cp")
    with pytest.raises(CheckpointAway, match=r"^webhdfs://127.0.0.1:1/cp: ") as caught:
        read_checkpoint(store, "webhdfs://u:topsecret@127.0.0.1:1/cp")
    assert "topsecret" not in str(caught.value)


def test_without_webhdfs_and_hadoops_library_the_line_reports_what_to_set() -> None:
    with pytest.raises(CheckpointAway, match=r"hdfs:// needs .* webhdfs = .*pyarrow") as caught:
        read_checkpoint(CheckpointStore({}, 10.0), "hdfs://namenode:8020/cp")
    assert "\n" not in str(caught.value)


def test_a_cluster_that_does_not_answer_costs_one_deadline(hdfs: HdfsCluster, folder: str) -> None:
    reader = CheckpointStore(hdfs.storage(), 2.0).reader(f"hdfs://{folder}/cps/batch_fails")
    hdfs.freeze()
    try:
        with pytest.raises(CheckpointAway, match="the store did not answer within 2 s"):
            reader.poll()
    finally:
        hdfs.thaw()
