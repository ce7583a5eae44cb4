"""What the checkpoint intake costs, and how long after a commit the position is known.

500 checkpoints on a local disk, all their batches written by another process; then one query at a
time commits at a random moment, on the disk and on a real S3 server. The delay is compared with the
polling interval: what is over it is the intake's own.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.comparison import Row, say
from sparklag_schemas import CheckpointSettings, Settings
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_service.counters import Counters
from sparklag_service.intakes import Delivery, SourceContext, delivery_queue
from sparklag_service.intakes.checkpoints import CheckpointIntake
from tests.s3_server import S3Server

_CHECKPOINTS: Final = 500
_INTERVAL_S: Final = 5.0
_SHARE_REACH: Final = 0.05
_MEASURED_S: Final = 20.0
_DELAY_INTERVAL_S: Final = 1.0
_COMMITS: Final = 40
_OVER_REACH_MS: Final = 50.0
_PARTITIONS: Final = 12


def run() -> list[Row]:
    """Rows for a local disk, and for S3."""
    with tempfile.TemporaryDirectory(prefix="sparklag-checkpoints-") as folder:
        local = asyncio.run(_local(Path(folder)))
    say("checkpoint_delay: S3")
    with S3Server() as server:
        return [*local, *asyncio.run(_s3(server))]


async def _local(folder: Path) -> list[Row]:
    rows = []
    for number in range(_CHECKPOINTS):
        _begin(folder / str(number), f"query-{number}")
    async with _intake(_INTERVAL_S, [f"{folder}/*"]) as queue:
        await _told(queue, _CHECKPOINTS)
        say("checkpoint_delay: nothing changes")
        idle = await _share()
        say("checkpoint_delay: every query has a batch in every interval")
        writer = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.checkpoint_delay", str(folder)
        )
        try:
            await asyncio.sleep(_INTERVAL_S)
            busy = await _share()
        finally:
            writer.terminate()
            await writer.wait()
    for what, share in (("nothing changes", idle), ("each has a batch in each", busy)):
        rows.append(
            Row(
                f"intake, {_CHECKPOINTS} local checkpoints every {_INTERVAL_S:g} s, {what}: CPU",
                f"{share:.2%} of a core",
                "",
                reach=f"≤ {_SHARE_REACH:.0%}",
                reached=share <= _SHARE_REACH,
            )
        )
    # Its own: the others' writer has come to a later batch.
    place = folder / "alone"
    _begin(place, "query")
    async with _intake(_DELAY_INTERVAL_S, [str(place)]) as queue:
        say("checkpoint_delay: commits on the disk")
        over = await _over_interval(queue, _writer(place))
    return [*rows, _over("local", over, _OVER_REACH_MS, "50 ms")]


async def _s3(server: S3Server) -> list[Row]:
    client = server.client()
    client.call_s3("create_bucket", Bucket="lake")

    def write(name: str, content: bytes) -> None:
        client.pipe(f"lake/cp/{name}", content)

    write("metadata", b'{"id":"query"}')
    _commit(write, 0)
    listings_ms = []
    for _ in range(20):
        start_s = time.perf_counter()
        client.invalidate_cache()
        client.ls("lake/cp/commits")
        listings_ms.append((time.perf_counter() - start_s) * 1000)
    settings = {"storage": server.storage(), "timeout_s": 60.0}
    async with _intake(_DELAY_INTERVAL_S, ["s3://lake/cp"], **settings) as queue:
        over = await _over_interval(queue, write)
    # A listing, and the two reads that follow a change, at the same server.
    reach_ms = 4 * max(listings_ms) + _OVER_REACH_MS
    return [_over("S3", over, reach_ms, f"one look: {reach_ms:.0f} ms")]


def _over(where: str, over_ms: list[float], reach_ms: float, reach: str) -> Row:
    return Row(
        f"{where}: from commit to queue, over the polling interval, worst of {len(over_ms)}",
        f"{max(over_ms):.0f} ms (median {median(over_ms):.0f} ms)",
        f"interval {_DELAY_INTERVAL_S:g} s",
        reach=f"≤ {reach}",
        reached=max(over_ms) <= reach_ms,
    )


async def _over_interval(
    queue: NewestQueue[Delivery], write: Callable[[str, bytes], None]
) -> list[float]:
    """Milliseconds by which the position came later than an interval; negative: sooner."""
    await _told(queue, 1)
    found = []
    for batch_id in range(1, _COMMITS + 1):
        await asyncio.sleep(random.uniform(0, _DELAY_INTERVAL_S))
        await asyncio.to_thread(_commit, write, batch_id)
        committed_s = time.monotonic()
        while True:
            delivery = await queue.get()
            if delivery.observation.batch_id == batch_id:
                break
        found.append((time.monotonic() - committed_s - _DELAY_INTERVAL_S) * 1000)
    return found


async def _told(queue: NewestQueue[Delivery], count: int) -> None:
    seen: set[str] = set()
    while len(seen) < count:
        seen.add((await queue.get()).observation.query_id)


async def _share() -> float:
    """CPU seconds of this process for each second."""
    begun_s, cpu_s = time.monotonic(), time.process_time()
    await asyncio.sleep(_MEASURED_S)
    return (time.process_time() - cpu_s) / (time.monotonic() - begun_s)


@asynccontextmanager
async def _intake(
    interval_s: float, locations: list[str], **fields: Any
) -> AsyncIterator[NewestQueue[Delivery]]:
    checkpoints = CheckpointSettings(locations=locations, interval_s=interval_s, **fields)
    queue = delivery_queue(10_000, Counters())
    settings = Settings(checkpoints=checkpoints).resolved("broker:9092")
    context = SourceContext(settings, queue, lambda _: True, {})
    intake = asyncio.create_task(CheckpointIntake(context).run())
    try:
        yield queue
    finally:
        intake.cancel()
        with suppress(asyncio.CancelledError):
            await intake


def _writer(folder: Path) -> Callable[[str, bytes], None]:
    for log in ("offsets", "commits"):
        (folder / log).mkdir(parents=True, exist_ok=True)

    def write(name: str, content: bytes) -> None:
        beside = folder / f".{name.replace('/', '-')}.tmp"
        beside.write_bytes(content)
        beside.rename(folder / name)

    return write


def _begin(folder: Path, query_id: str) -> None:
    write = _writer(folder)
    write("metadata", json.dumps({"id": query_id}).encode())
    _commit(write, 0)


def _commit(write: Callable[[str, bytes], None], batch_id: int) -> None:
    offsets = {"orders": {str(part): batch_id * 1_000 + part for part in range(_PARTITIONS)}}
    write(f"offsets/{batch_id}", f"v1\n{{}}\n{json.dumps(offsets)}".encode())
    write(f"commits/{batch_id}", b'v1\n{"nextBatchWatermarkMs":0}')


def _write_for_ever(folder: Path) -> None:
    writers = [_writer(folder / str(number)) for number in range(_CHECKPOINTS)]
    batch_id = 0
    while True:
        batch_id += 1
        for write in writers:
            _commit(write, batch_id)
            time.sleep(_INTERVAL_S / _CHECKPOINTS)


if __name__ == "__main__":
    _write_for_ever(Path(sys.argv[1]))
