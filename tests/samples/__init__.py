"""What Spark wrote: see README.md here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PROGRESS = sorted(file.stem for file in (FOLDER / "progress").glob("*progress*.json"))
"""Names of all progress events, as `progress_text` takes them."""

OTHER_SOURCES: dict[str, dict[str, Any]] = json.loads(
    (FOLDER / "other_sources.json").read_text(encoding="utf-8")
)
"""By name: `progress`, what a source adds to `sources`, and `line`, its line of an offsets file."""


def progress_text(name: str) -> str:
    return (FOLDER / "progress" / f"{name}.json").read_text(encoding="utf-8")


def progress_document(name: str) -> dict[str, Any]:
    return dict(json.loads(progress_text(name)))


def committed_offsets(folder: Path, batch_id: int | None = None) -> list[Any]:
    """What offsets/N says of each source (None for `-`), N being `batch_id` or the last committed.

    Read plainly, by nothing of ours, so that tests can compare.
    """
    numbers = [int(file.name) for file in (folder / "commits").iterdir() if file.name.isdigit()]
    number = max(numbers) if batch_id is None else batch_id
    lines = (folder / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
    assert lines[0] == "v1"
    return [None if line == "-" else json.loads(line) for line in lines[2:]]
