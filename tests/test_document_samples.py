"""The output of commands in the documents is what the commands write."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console, RenderableType

from sparklag_schemas import decode_lag_event
from sparklag_schemas.presentation.rows import Summary
from sparklag_schemas.presentation.tables import event_view
from sparklag_service.cli.queries import table

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "tests/samples"
EVENT = decode_lag_event((SAMPLES / "lag_event.json").read_bytes())
QUERIES = msgspec.json.decode((SAMPLES / "summaries.json").read_bytes(), type=list[Summary])
LAG, LIST = event_view(EVENT, EVENT.measured_at + 600), table(QUERIES, 1_790_000_001_000)


@pytest.mark.parametrize(
    ("document", "command", "output", "width"),
    [
        ("README.md", "lag orders", LAG, 80),
        ("docs/user/first-lag.md", "lag orders", LAG, 80),
        ("docs/user/terminal.md", "queries", LIST, 60),
    ],
)
def test_a_document_has_the_lines_that_the_command_writes(
    document: str, command: str, output: RenderableType, width: int
) -> None:
    written = StringIO()
    Console(file=written, width=width).print(output)
    text = (ROOT / document).read_text()
    (lines,) = re.findall(rf"^\$ sparklag {command}\n((?:[^$`].*\n)+?)(?:…$|```)", text, re.M)
    assert written.getvalue().startswith(lines)
