"""What commands write on terminals of 60, 80 and 120 columns, and into a pipe."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from rich.cells import cell_len

from sparklag_schemas import LagEvent, PartitionLag, TopicLag
from tests.messages import QUERY_ID, lag_event
from tests.offsets.checkpoints.folders import SAMPLES
from tests.service.cli.terminals import WIDTHS, Shown, command, large_numbers, on_terminal, piped
from tests.service.cli.test_cli_offsets import store as store  # a fixture
from tests.service.live.live_server import LiveServer

# Processes of their own, which take seconds.
pytestmark = [pytest.mark.kafka]

REASON = "no batch has completed for 12 min, and the usual interval between two is 10 s"
HOSTILE = "[bold red]\x1b[2J\u202e\t" + "y" * 300
NO_KAFKA = 2
"""`queries` reports that a part of this service fails: it has no Kafka."""
each_width = pytest.mark.parametrize("width", WIDTHS)


def event(lag: int | None, **fields: Any) -> LagEvent:
    topic = fields.pop("topic", "orders")
    partition = PartitionLag(
        partition=3,
        processed_offset=1_234_567,
        latest_offset=None if lag is None else 1_234_567 + lag,
        lag=lag,
        status="OK",
        reason="its leader did not answer" if lag is None else None,
    )
    topics = [TopicLag(topic=topic, source=0, total_lag=lag, partitions=[partition])]
    return lag_event(total_lag=lag, max_lag=lag, topics=topics, **fields)


@pytest.fixture
def served(live: LiveServer) -> LiveServer:
    """One query that stalls, one with a hostile name, and one whose lag is not known."""
    live.show(event(126_671, status="STALL", reason=REASON, max_time_lag_s=720.0))
    live.show(event(9_007_199_254, query_id="hostile", query=HOSTILE, topic="t" * 249))
    live.show(event(None, query_id=f"{QUERY_ID[:10]}-other", query=None, status="UNKNOWN"))
    return live


async def shown(live: LiveServer, width: int | None, name: str, *arguments: str) -> Shown:
    program = command(name, *arguments, "--url", live.url)
    if width is None:
        return await asyncio.to_thread(piped, program)
    return await asyncio.to_thread(on_terminal, width, program)


def fits(result: Shown, width: int, *, code: int = 0) -> bool:
    assert result.returncode == code, result.stderr
    assert all(line.isprintable() for line in result.lines)
    return max(map(cell_len, result.lines)) <= width


@each_width
async def test_queries_on_a_terminal(served: LiveServer, width: int) -> None:
    result = await shown(served, width, "queries")
    assert fits(result, width, code=NO_KAFKA)
    headings = result.lines[0].split()
    assert headings[:5] == ["query", "id", "topic", "status", "lag"]
    assert large_numbers(result.text) == {"126,671", "9,007,199,254"}
    (stalled,) = (line for line in result.lines if "STALL" in line)
    # No other id begins with these.
    assert stalled.split()[:5] == ["orders", QUERY_ID[:11], "orders", "STALL", "126,671"]
    (unknown,) = (line for line in result.lines if "UNKNOWN" in line)
    assert unknown.split()[4] == "unknown"
    below = result.lines[result.lines.index(stalled) + 1 :]
    assert " ".join(" ".join(below).split()).startswith(REASON)
    assert ("not shown in" in result.text) == ("by" not in headings)


async def test_queries_in_a_pipe_is_a_line_for_each_with_every_field(served: LiveServer) -> None:
    result = await shown(served, None, "queries")
    assert result.returncode == NO_KAFKA
    assert "\x1b" not in result.text
    heading, *rows = (line.split("\t") for line in result.lines)
    queries = {row[1]: dict(zip(heading, row, strict=True)) for row in rows}
    assert len(queries) == 3
    assert all(field for row in rows for field in row)
    stalled = queries[QUERY_ID]
    assert (stalled["query"], stalled["topics"], stalled["status"]) == ("orders", "orders", "STALL")
    assert (stalled["total_lag"], stalled["max_time_lag_s"]) == ("126671", "720.0")
    assert stalled["reason"] == REASON
    assert queries[f"{QUERY_ID[:10]}-other"]["total_lag"] == "unknown"
    assert queries[f"{QUERY_ID[:10]}-other"]["query"] == "-"
    assert queries["hostile"]["topics"] == "t" * 249
    assert queries["hostile"]["query"] == r"[bold red]\x1b[2J\u202e\t" + "y" * 300


@each_width
async def test_lag_on_a_terminal(served: LiveServer, width: int) -> None:
    result = await shown(served, width, "lag", "hostile")
    assert fits(result, width)
    numbers = large_numbers(result.text)
    assert "9,007,199,254" in numbers
    assert numbers <= {"9,007,199,254", "1,234,567", "9,008,433,821"}
    if "not shown" not in result.text:
        assert len(numbers) == 3


async def test_lag_in_a_pipe_has_every_column_and_a_line_per_partition(served: LiveServer) -> None:
    result = await shown(served, None, "lag", "hostile")
    assert all(line == line.rstrip() for line in result.lines)
    numbers = ["3", "1,234,567", "9,008,433,821", "9,007,199,254"]
    assert result.lines[-1].split() == ["t" * 249, *numbers, "unknown"]
    assert result.lines[-2].split()[-3:] == ["time", "lag", "reason"]


@each_width
def test_offsets_and_checkpoints_on_a_terminal(store: str, width: int) -> None:
    for arguments in (
        ("offsets", "list", "--store", store),
        ("offsets", "show", "orders", "--store", store),
        ("checkpoint", str(SAMPLES / "single_kafka")),
    ):
        result = on_terminal(width, command(*arguments))
        assert fits(result, width), arguments


def test_what_cannot_be_done_is_one_line_on_a_narrow_terminal_too() -> None:
    for arguments in (
        ("queries", "--colour"),
        ("lag",),
        ("lag", "orders", "--max-lag", "many"),
        ("queries", "--url", "http://127.0.0.1:1/lag?x=1"),
        ("tail", "--url", "http://127.0.0.1:1", "--bootstrap-servers", "127.0.0.1:1"),
    ):
        result = on_terminal(60, command(*arguments))
        assert result.returncode == 2
        (line,) = result.stderr.splitlines()
        assert line.startswith("sparklag: ")
