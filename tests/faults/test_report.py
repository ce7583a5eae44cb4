"""The table of faults."""

from __future__ import annotations

import json
from pathlib import Path

from tests.faults.report import Row, table, write_json
from tests.faults.truth import Verdict


def rows() -> list[Row]:
    held = Row("broker restarted", "held", took_s=21.04)
    held.fill(Verdict(longest_gap_s=5.24, recovery_s=0.61), "alone")
    return [held, Row("connection cut")]


def test_its_columns_line_up_and_what_is_not_known_is_no_zero() -> None:
    assert table(rows()) == [
        "fault             lost  wrong  longest gap  recovery  late    took  result          note",
        "----------------  ----  -----  -----------  --------  ----  ------  --------------  -----",
        "broker restarted     0      0        5.2 s     0.6 s     0  21.0 s  held            alone",
        "connection cut       -      -            -         -     -       -  did not finish",
    ]


def test_the_same_is_there_for_machines(tmp_path: Path) -> None:
    write_json(rows(), tmp_path / "faults.json")

    first, second = json.loads((tmp_path / "faults.json").read_text())
    assert (first["fault"], first["lost"], first["recovery_s"]) == ("broker restarted", 0, 0.61)
    assert second["lost"] is None
