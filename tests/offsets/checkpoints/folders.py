"""Writes checkpoints as Spark does, for what no sample shows."""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparklag_offsets.checkpoints import (
    CheckpointPosition,
    CheckpointReader,
    CheckpointStore,
    read_checkpoint,
)
from sparklag_schemas import Offsets

METADATA = b'{"batchWatermarkMs":0,"batchTimestampMs":1790000000000,"conf":{}}'
_NAMED = METADATA.replace(
    b"{}", b'{"spark.sql.streaming.queryEvolution.enableSourceEvolution":"true"}'
)
COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'
SAMPLES = Path(__file__).parents[2] / "samples" / "checkpoints"

Line = Offsets | int | None
"""The line of a source: Kafka's offsets, a number of another source, or `-`."""


def v1(*lines: Line, continuous: bool = False) -> bytes:
    return b"\n".join((b"v1", b"" if continuous else METADATA, *map(_line, lines)))


def v2(lines: dict[str, Line], *, named: bool = False) -> bytes:
    """An offsets file of the second format. `named`: the keys are names that the query gave."""
    written = (key.encode() + b":" + _line(line) for key, line in lines.items())
    return b"\n".join((b"v2", _NAMED if named else METADATA, *written))


def _line(line: Line) -> bytes:
    if line is None:
        return b"-"
    if isinstance(line, int):
        return str(line).encode()
    return json.dumps(line, separators=(",", ":")).encode()


def upload(filesystem: Any, sample: str, root: str) -> None:
    """A sample, by fsspec, without what is of no use here."""
    for path in sorted((SAMPLES / sample).rglob("*")):
        name = path.relative_to(SAMPLES / sample)
        if path.is_file() and not path.name.startswith(".") and name.parts[0] != "sources":
            filesystem.pipe(f"{root}/{name}", path.read_bytes())


def batches(position: CheckpointPosition | None) -> tuple[int | None, int | None] | None:
    """The newest that is committed, and the newest that is planned. None: nothing has changed."""
    return None if position is None else (position.batch_id, position.planned_batch_id)


def check_is_sample(result: CheckpointPosition, sample: str) -> None:
    """Check that a position read elsewhere is that of the sample, except for file times."""
    here = read_checkpoint(CheckpointStore({}, 1.0), str(SAMPLES / sample))
    assert result.committed_at_ms is not None
    committed_at_ms, planned_at_ms = here.committed_at_ms, here.planned_at_ms
    assert replace(result, committed_at_ms=committed_at_ms, planned_at_ms=planned_at_ms) == here


class Checkpoint:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.create()

    def create(self) -> None:
        self.query_id = str(uuid.uuid4())
        self.folder.mkdir(parents=True)
        self.write("metadata", json.dumps({"id": self.query_id}).encode())
        for log in ("offsets", "commits", "sources", "state"):
            (self.folder / log).mkdir()

    def write(self, name: str, content: bytes) -> None:
        """Write as Spark does: beside it, then renamed, so that the file is whole or missing."""
        path = self.folder / name
        beside = path.parent / f".{path.name}.{uuid.uuid4()}.tmp"
        beside.write_bytes(content)
        beside.rename(path)

    def plan(self, batch_id: int, *lines: Line) -> None:
        self.write(f"offsets/{batch_id}", v1(*lines))

    def commit(self, batch_id: int) -> None:
        self.write(f"commits/{batch_id}", COMMIT)

    def run(self, batch_id: int, *lines: Line) -> None:
        self.plan(batch_id, *lines)
        self.commit(batch_id)

    def remove(self, *names: str) -> None:
        for name in names:
            (self.folder / name).unlink()

    def purge(self, below: int) -> None:
        """Delete files as Spark does once it does not need them."""
        for log in ("offsets", "commits"):
            for name in os.listdir(self.folder / log):
                if name.isdigit() and int(name) < below:
                    self.remove(f"{log}/{name}")

    def reader(self) -> CheckpointReader:
        return CheckpointStore({}, 10.0).reader(str(self.folder))
