"""What it costs to poll checkpoints: 500 on a local disk every 5 s; requests for each look at S3.

Beside it on the disk: listing both folders of each and reading the newest offsets file, which is
what one would write first. The writer of the batches runs between the passes, and is not counted.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.comparison import Row, ms, say, times
from sparklag_offsets.checkpoints import CheckpointReader, CheckpointStore
from tests.s3_server import RequestCounter, S3Server

INTERVAL_S: Final = 5.0
SHARE_REACH: Final = 0.05
"""Of one core."""

_CHECKPOINTS: Final = 500
_KEPT: Final = 100
"""Batches, as Spark keeps them by default."""
_PARTITIONS: Final = 12
_PASSES: Final = 12
_SETTLED_S: Final = 3.0
"""After so long a folder's time is trusted."""
_METADATA: Final = {
    "batchWatermarkMs": 0,
    "batchTimestampMs": 1_790_000_000_000,
    # About as long as Spark's own.
    "conf": {f"spark.sql.streaming.setting.{number}": "x" * 40 for number in range(11)},
}


def run() -> list[Row]:
    """Rows for a local disk, and for S3."""
    with _folder() as folder:
        local = list(_local(folder))
    say("checkpoint_polling: S3")
    with S3Server() as server:
        return [*local, *_s3(server)]


class _Query:
    """A query's checkpoint on the disk, and what Spark does to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.batch_id = _KEPT - 1
        for log in ("offsets", "commits", "sources/0", "state/0/0"):
            (folder / log).mkdir(parents=True)
        (folder / "metadata").write_text(json.dumps({"id": f"query-{folder.name}"}))
        for number in range(_KEPT):
            self._write("offsets", number, _offsets(number))
            self._write("commits", number, b'v1\n{"nextBatchWatermarkMs":0}')

    def commit_next(self) -> None:
        """One batch is planned and committed, and what is too old deleted."""
        self.batch_id += 1
        self._write("offsets", self.batch_id, _offsets(self.batch_id))
        self._write("commits", self.batch_id, b'v1\n{"nextBatchWatermarkMs":0}')
        for log in ("offsets", "commits"):
            (self.folder / log / str(self.batch_id - _KEPT)).unlink()

    def look_simply(self) -> None:
        """Both listed, the newest offsets read."""
        newest: dict[str, int] = {}
        for log in ("offsets", "commits"):
            names = (file.name for file in (self.folder / log).iterdir())
            newest[log] = max(int(name) for name in names if name.isdigit())
        text = (self.folder / "offsets" / str(newest["commits"])).read_text()
        json.loads(text.splitlines()[2])

    def _write(self, log: str, number: int, content: bytes) -> None:
        beside = self.folder / log / f".{number}.tmp"
        beside.write_bytes(content)
        beside.rename(self.folder / log / str(number))


def _offsets(number: int) -> bytes:
    offsets = {"orders": {str(part): number * 1_000 + part for part in range(_PARTITIONS)}}
    return f"v1\n{json.dumps(_METADATA)}\n{json.dumps(offsets)}".encode()


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="sparklag-checkpoints-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _local(folder: Path) -> Iterator[Row]:
    say(f"checkpoint_polling: writing {_CHECKPOINTS} checkpoints of {_KEPT} batches")
    queries = [_Query(folder / str(number)) for number in range(_CHECKPOINTS)]
    store = CheckpointStore({}, 10.0)
    readers = [store.reader(location) for location in store.find(f"{folder}/*")]
    first_ms = _cpu_ms(lambda: _look(readers, expected=_CHECKPOINTS))
    idle_ms, busy_ms, simple_ms = [], [], []
    for number in range(_PASSES):
        say(f"checkpoint_polling: pass {number + 1} of {_PASSES}")
        for query in queries:
            query.commit_next()
        busy_ms.append(_cpu_ms(lambda: _look(readers, expected=_CHECKPOINTS)))
        time.sleep(_SETTLED_S)
        # The first after a change lists once more.
        _look(readers, expected=0)
        idle_ms.append(_cpu_ms(lambda: _look(readers, expected=0)))
        simple_ms.append(_cpu_ms(lambda: _look_simply(queries)))
    what = f"{_CHECKPOINTS} local checkpoints"
    yield _share(f"{what}, nothing changes: CPU of a pass", idle_ms, simple_ms)
    yield _share(f"{what}, each has a new batch: CPU of a pass", busy_ms, simple_ms)
    yield Row(f"{what}: first pass", f"{first_ms:.0f} ms", "")


def _look(readers: Sequence[CheckpointReader], expected: int) -> None:
    moved = sum(reader.poll() is not None for reader in readers)
    if moved != expected:
        raise RuntimeError(f"{moved} of {len(readers)} had moved, not {expected}")


def _look_simply(queries: Sequence[_Query]) -> None:
    for query in queries:
        query.look_simply()


def _cpu_ms(work: Callable[[], object]) -> float:
    start_s = time.thread_time()
    work()
    return (time.thread_time() - start_s) * 1000


def _share(what: str, ours_ms: list[float], simple_ms: list[float]) -> Row:
    share = median(ours_ms) / 1000 / INTERVAL_S
    return Row(
        what,
        f"{ms(ours_ms)}, {share:.2%} of a core",
        f"{ms(simple_ms)}, listing and reading all",
        times(median(ours_ms) / median(simple_ms)),
        f"≤ {SHARE_REACH:.0%} of a core",
        share <= SHARE_REACH,
    )


def _s3(server: S3Server) -> Iterator[Row]:
    client = server.client()
    client.call_s3("create_bucket", Bucket="lake")

    def write(name: str, content: bytes) -> None:
        client.pipe(f"lake/cp/{name}", content)

    write("metadata", b'{"id":"query"}')
    write("offsets/0", _offsets(0))
    write("commits/0", b"v1\n{}")
    reader = CheckpointStore(server.storage(), 60.0).reader("s3://lake/cp")
    counter = RequestCounter(reader)

    def look(what: str, reach: int) -> Row:
        reader.poll()
        asked: dict[str, Any] = counter.take()
        listings, reads = asked.get("ListObjectsV2", 0), asked.get("GetObject", 0)
        return Row(
            f"S3, {what}: requests",
            f"{listings} listing, {reads} small reads",
            "",
            reach=f"≤ 1 listing, {reach} reads",
            reached=listings <= 1 and reads <= reach,
        )

    reader.poll()
    counter.take()
    yield look("nothing changes, no batch runs", 1)
    write("offsets/1", _offsets(1))
    yield look("a batch was planned", 2)
    yield look("nothing changes, a batch runs", 1)
    write("commits/1", b"v1\n{}")
    write("offsets/2", _offsets(2))
    yield look("a batch was committed, the next planned", 2)
    for number in range(2, 8):
        write(f"offsets/{number}", _offsets(number))
        write(f"commits/{number}", b"v1\n{}")
    yield look("several batches were committed", 2)
    walls_ms = []
    for _ in range(50):
        start_s = time.perf_counter()
        reader.poll()
        walls_ms.append((time.perf_counter() - start_s) * 1000)
    yield Row("S3 on this machine, nothing changes: time of a look", ms(walls_ms), "")
