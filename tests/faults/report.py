"""The table at the end: what each fault did."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from tests.faults.truth import Verdict


@dataclass
class Row:
    fault: str
    result: str = "did not finish"
    lost: int | None = None
    wrong: int | None = None
    longest_gap_s: float | None = None
    recovery_s: float | None = None
    late: int | None = None
    note: str = ""
    took_s: float | None = None

    def fill(self, verdict: Verdict, note: str = "") -> None:
        self.lost = len(verdict.lost)
        self.wrong = len(verdict.wrong)
        self.longest_gap_s = verdict.longest_gap_s
        self.recovery_s = verdict.recovery_s
        self.late = verdict.late
        self.note = note


ROWS = pytest.StashKey[list[Row]]()

_HEADINGS = ("fault", "lost", "wrong", "longest gap", "recovery", "late", "took", "result", "note")


def table(rows: Sequence[Row]) -> list[str]:
    cells = [_HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEADINGS))]
    lines = ["  ".join(_pad(line, widths)).rstrip() for line in cells]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]


def write_json(rows: Sequence[Row], path: Path) -> None:
    path.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.fault,
        _count(row.lost),
        _count(row.wrong),
        _seconds(row.longest_gap_s),
        _seconds(row.recovery_s),
        _count(row.late),
        _seconds(row.took_s),
        row.result,
        row.note,
    )


def _pad(line: tuple[str, ...], widths: Sequence[int]) -> list[str]:
    # Numbers to the right, words to the left.
    return [
        cell.rjust(width) if 1 <= column <= 6 else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(line, widths, strict=True))
    ]


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
