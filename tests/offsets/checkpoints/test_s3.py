"""Checkpoints in a real S3 server, which checks signatures: positions, requests, failures."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sparklag_offsets.checkpoints import CheckpointReader, CheckpointStore, read_checkpoint
from sparklag_offsets.checkpoints.files import MAX_FILE_BYTES
from sparklag_offsets.checkpoints.filesystems import open_filesystem
from sparklag_offsets.errors import CheckpointAway, CheckpointNotFound, MalformedCheckpoint
from tests.offsets.checkpoints.folders import (
    COMMIT,
    METADATA,
    Line,
    batches,
    check_is_sample,
    upload,
    v1,
)
from tests.s3_server import KEY, SECRET, RequestCounter, S3Server
from tests.waiting import wait_for

pytestmark = pytest.mark.kafka

LIST, GET = "ListObjectsV2", "GetObject"


class Bucket:
    def __init__(self, server: S3Server) -> None:
        self.server = server
        self.name = f"lake-{uuid.uuid4().hex[:8]}"
        self._client = server.client()
        self._client.call_s3("create_bucket", Bucket=self.name)

    def put(self, sample: str, key: str) -> str:
        upload(self._client, sample, f"{self.name}/{key}")
        return f"s3://{self.name}/{key}"

    def plan(self, key: str, batch_id: int, *lines: Line) -> None:
        self.write(f"{key}/offsets/{batch_id}", v1(*lines))

    def commit(self, key: str, batch_id: int) -> None:
        self.write(f"{key}/commits/{batch_id}", COMMIT)

    def write(self, key: str, content: bytes) -> None:
        self._client.pipe(f"{self.name}/{key}", content)


@pytest.fixture(autouse=True)
def _no_connection_is_left() -> Iterator[None]:
    """s3fs closes them when garbage is collected: here, and not on the loop of another test."""
    yield
    gc.collect()


@pytest.fixture
def bucket(s3: S3Server) -> Bucket:
    return Bucket(s3)


@pytest.fixture
def store(s3: S3Server) -> CheckpointStore:
    return CheckpointStore(s3.storage(), 60.0)


def at(offset: int) -> Line:
    return {"orders": {0: offset}}


def test_samples_are_read_and_match_a_pattern(bucket: Bucket, store: CheckpointStore) -> None:
    names = ["batch_fails", "continuous", "offsets_v2_named_sources", "union_two_kafka"]
    for name in names:
        bucket.put(name, f"team/a b/{name}")
    bucket.write("team/a b/something/else", b"x")
    result = store.find(f"s3a://{bucket.name}/team/*/*")
    assert result == [f"s3://{bucket.name}/team/a b/{name}" for name in names]
    for name, location in zip(names, result, strict=True):
        check_is_sample(read_checkpoint(store, location.replace("s3://", "s3n://")), name)


def test_a_poll_lists_once_and_reads_at_most_twice(bucket: Bucket, store: CheckpointStore) -> None:
    location = bucket.put("batch_fails", "cp")
    reader = store.reader(location)
    requests = RequestCounter(reader)

    assert batches(reader.poll()) == (0, 1)
    assert requests.take() == {LIST: 2, GET: 3}
    assert batches(reader.poll()) is None
    assert requests.take() == {LIST: 1}
    bucket.commit("cp", 1)
    assert batches(reader.poll()) == (1, None)
    assert requests.take() == {LIST: 1, GET: 2}
    assert batches(reader.poll()) is None
    assert requests.take() == {LIST: 1, GET: 1}
    bucket.plan("cp", 2, {"fl": {0: 9, 1: 9}})
    assert batches(reader.poll()) == (1, 2)
    assert requests.take() == {LIST: 1, GET: 1}
    bucket.commit("cp", 2)
    for number in range(3, 9):
        bucket.plan("cp", number, {"fl": {0: 9 + number, 1: 9}})
        bucket.commit("cp", number)
    bucket.plan("cp", 9, {"fl": {0: 99, 1: 99}})
    assert batches(reader.poll()) == (8, 9)
    assert requests.take() == {LIST: 1, GET: 2}


def test_batches_with_holes_take_one_listing(bucket: Bucket, store: CheckpointStore) -> None:
    bucket.write("cp/metadata", b'{"id":"a-b"}')
    for number in (0, 7):
        bucket.plan("cp", number, at(number))
        bucket.commit("cp", number)
    reader = store.reader(f"s3://{bucket.name}/cp")
    requests = RequestCounter(reader)
    assert reader.poll() is not None
    requests.take()
    assert reader.poll() is None
    assert requests.take() == {LIST: 1}
    bucket.plan("cp", 12, at(12))
    assert batches(reader.poll()) == (7, 12)
    assert requests.take() == {LIST: 2, GET: 1}
    assert reader.poll() is None
    assert requests.take() == {LIST: 1}
    bucket.commit("cp", 12)
    assert batches(reader.poll()) == (12, None)
    assert requests.take() == {LIST: 2, GET: 1}


def test_a_huge_file_is_read_up_to_the_limit(bucket: Bucket, store: CheckpointStore) -> None:
    location = bucket.put("batch_fails", "cp")
    bucket.write("cp/offsets/1", bytes(2 * MAX_FILE_BYTES))
    reader = store.reader(location)
    with pytest.raises(MalformedCheckpoint, match=f"^{location}: .*/offsets/1 has more than"):
        reader.poll()


def test_a_plan_that_is_still_empty_is_none(bucket: Bucket, store: CheckpointStore) -> None:
    location = bucket.put("batch_fails", "cp")
    bucket.write("cp/offsets/1", b"")
    assert batches(store.reader(location).poll()) == (0, None)


def test_neither_state_nor_sources_is_ever_listed(bucket: Bucket, store: CheckpointStore) -> None:
    location = bucket.put("union_two_kafka", "cp")
    bucket.write("cp/state/0/0/1.delta", b"x")
    reader = store.reader(location)
    requests = RequestCounter(reader)
    reader.poll()
    assert {prefix for prefix in requests.prefixes if prefix} == {"cp/commits/", "cp/offsets/"}


def test_each_missing_thing_is_reported_in_one_line(bucket: Bucket, store: CheckpointStore) -> None:
    bucket.put("batch_fails", "cps/q")
    root = f"s3://{bucket.name}"
    with pytest.raises(CheckpointAway, match=r"^s3://no-such-lake/cp: there is no such bucket"):
        read_checkpoint(store, "s3://no-such-lake/cp")
    with pytest.raises(CheckpointAway, match=r"^s3://no-such-lake/\*: there is no such bucket"):
        store.find("s3a://no-such-lake/*")
    with pytest.raises(CheckpointNotFound, match=f"^{root}/no: there is no checkpoint here"):
        read_checkpoint(store, f"{root}/no")
    with pytest.raises(CheckpointNotFound, match=f"^{root}/cps: there is no checkpoint here"):
        read_checkpoint(store, f"{root}/cps")
    with pytest.raises(CheckpointNotFound, match=r"/cps/x\*: no checkpoint matches"):
        store.find(f"{root}/cps/x*")


def test_keys_that_stand_for_folders_are_no_files(bucket: Bucket, store: CheckpointStore) -> None:
    location = bucket.put("union_two_kafka", "cps/q")
    for key in ("cps/", "cps/q/", "cps/q/commits/", "cps/q/offsets/", "empty/"):
        bucket.write(key, b"")
    assert store.find(f"s3://{bucket.name}/cps/*") == [location]
    assert read_checkpoint(store, location).batch_id == 1
    with pytest.raises(CheckpointNotFound, match="/empty: there is no checkpoint here"):
        read_checkpoint(store, f"s3://{bucket.name}/empty")


def test_many_threads_share_one_store(bucket: Bucket, store: CheckpointStore) -> None:
    location = bucket.put("union_two_kafka", "cp")
    readers = [store.reader(location) for _ in range(40)]
    with ThreadPoolExecutor(16) as threads:
        first = list(threads.map(lambda reader: reader.poll(), readers))
        again = list(threads.map(lambda reader: reader.poll(), readers))
    assert first[0] is not None
    assert first == [first[0]] * 40
    assert again == [None] * 40


def test_a_log_of_several_listings_is_read_whole(bucket: Bucket, store: CheckpointStore) -> None:
    location = bucket.put("single_kafka", "cp")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: bucket.commit("cp", number), range(1_100)))
    bucket.plan("cp", 1_099, at(7))
    position = read_checkpoint(store, location)
    assert (position.batch_id, position.sources[0].processed) == (1_099, {"orders": {0: 7}})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"secret": "another-secret"}, "the credentials are wrong: the secret does not fit"),
        ({"key": "another-key"}, "the credentials are wrong: the store does not know"),
        ({"key": None, "secret": None, "anon": True}, "no right to read there"),
        ({"no_such_option": "another-secret"}, "checkpoints.storage has an option that"),
        ({"endpoint_url": "http://u:another-secret@127.0.0.1:1"}, "no connection to http://u:\\*"),
    ],
)
def test_credentials_are_not_shown(bucket: Bucket, options: dict[str, Any], message: str) -> None:
    location = bucket.put("batch_fails", "cp")
    store = CheckpointStore(bucket.server.storage(**options), 60.0)
    with pytest.raises(CheckpointAway, match=f"^{location}: .*{message}") as caught:
        read_checkpoint(store, location)
    line = str(caught.value)
    assert "\n" not in line
    for secret in (KEY, SECRET, "another-key", "another-secret"):
        assert secret not in line


def test_a_server_that_does_not_answer_costs_one_deadline(bucket: Bucket) -> None:
    location = bucket.put("batch_fails", "cp")
    store = CheckpointStore(bucket.server.storage(), 2.0)
    reader = store.reader(location)
    bucket.server.freeze()
    try:
        with pytest.raises(CheckpointAway, match="the store did not answer within 2 s"):
            reader.poll()
    finally:
        bucket.server.thaw()
    wait_for(lambda: can_look(reader), "it answers again")


def test_renewed_credentials_are_used(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    location = bucket.put("batch_fails", "cp")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "expired")
    store = CheckpointStore({"s3": {"endpoint_url": bucket.server.url}}, 60.0)
    reader: CheckpointReader = store.reader(location)
    with pytest.raises(CheckpointAway, match="the credentials are wrong"):
        reader.poll()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    wait_for(lambda: can_look(reader), "the new ones are taken up")


def can_look(reader: CheckpointReader) -> bool:
    try:
        return reader.poll() is not None
    except CheckpointAway:
        return False


def test_no_file_system_is_shared_and_no_listing_is_kept() -> None:
    options = {"endpoint_url": "http://127.0.0.1:1", "config_kwargs": {"signature_version": "s3"}}
    first = open_filesystem("s3", "s3://bucket/cp", options, 7.0)
    assert first is not open_filesystem("s3", "s3://bucket/cp", options, 7.0)
    assert first.dircache.use_listings_cache is False
    assert first.config_kwargs["read_timeout"] == 7.0
    assert first.config_kwargs["signature_version"] == "s3"


def test_metadata_of_a_batch_may_be_long(bucket: Bucket, store: CheckpointStore) -> None:
    partitions = {number: 10**15 + number for number in range(20_000)}
    bucket.write("cp/metadata", b'{"id":"a-b"}')
    bucket.write("cp/offsets/0", v1({"orders": partitions}).replace(METADATA, b"{}"))
    bucket.commit("cp", 0)
    position = read_checkpoint(store, f"s3://{bucket.name}/cp")
    assert position.sources[0].processed == {"orders": partitions}
