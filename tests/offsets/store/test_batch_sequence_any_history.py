"""The records of a query are whole, whatever its history and its observations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from sparklag_offsets.store.batch_record import BatchRecord
from sparklag_offsets.store.batch_sequence import BatchSequence
from sparklag_schemas import Batch, Observation
from tests.offsets.store.batches import (
    START_MS,
    check_whole,
    linked,
    output,
    recorded,
    repeated,
    source,
)


class Done(NamedTuple):
    rows: tuple[int, int]
    """The records in each of two partitions."""
    is_lost: bool
    reports_again: bool
    """Its position is repeated, as by an idle query."""
    again_is_lost: bool


@dataclass(frozen=True)
class Run:
    back: int
    """The batches before the next at which it begins: 1 is the last one once more."""
    as_planned: bool
    """A repeated batch reads the same; only the last batch ever is repeated."""
    clock_ms: int
    """The error of its clock in observations of a batch."""
    batches: list[Done]


class Again(NamedTuple):
    """Observations are delivered again from an earlier point."""

    at: int
    since: int
    restarted: bool
    """The writer knows only the records in the store."""


rows = st.tuples(st.integers(0, 50), st.integers(0, 50))
done = st.builds(Done, rows, st.booleans(), st.booleans(), st.booleans())
runs = st.builds(
    Run,
    back=st.sampled_from([0, 0, 0, 1, 1, 2, 5]),
    as_planned=st.booleans(),
    clock_ms=st.sampled_from([0, 0, -60_000, 60_000]),
    batches=st.lists(done, min_size=1, max_size=6),
)
repeats = st.builds(Again, st.integers(0, 60), st.integers(0, 60), st.booleans())


_BATCH = Done((0, 0), is_lost=False, reports_again=False, again_is_lost=False)


@example(
    [Run(0, False, clock_ms, [_BATCH]) for clock_ms in (60_000, 0)],
    [Again(at=1, since=0, restarted=False)],
)
@given(st.lists(runs, min_size=1, max_size=5), st.lists(repeats, max_size=4))
def test_records_are_whole_whatever_was_repeated(runs: list[Run], repeats: list[Again]) -> None:
    received, ends = _played(runs)
    records = recorded(received)
    check_whole(records)
    for record in records:
        if not record.is_inferred:
            assert record.end_offsets() == {
                (0, "orders"): ends[str(record.run_id), record.batch_id]
            }
    if received:
        assert records[-1].batch_id == received[-1].batch_id
    assert _recorded_with(repeats, received) == records


def _played(runs: list[Run]) -> tuple[list[Observation], dict[tuple[str, int], dict[int, int]]]:
    """The observations of the runs, and the true end of each batch."""
    received: list[Observation] = []
    truth: dict[tuple[str, int], dict[int, int]] = {}
    path = [{0: 0, 1: 0}]
    """The beginning of each batch that counts, and of the next one."""
    clock_ms = START_MS
    for number, run in enumerate(runs):
        run_id = f"run-{number}"
        first = max(len(path) - 1 - run.back, 0)
        again = path[first + 1] if run.back == 1 and run.as_planned and len(path) > 1 else None
        goes_back = first < len(path) - 1 and again is None
        path = path[: first + 1]
        for batch_id, batch in enumerate(run.batches, first):
            began = path[-1]
            ended = {n: at + batch.rows[n] for n, at in began.items()}
            if batch_id == first and again is not None:
                ended = again
            path.append(ended)
            truth[run_id, batch_id] = ended
            clock_ms += 1_000
            # That a query went back is not known before it is observed.
            if not batch.is_lost or (goes_back and batch_id == first):
                received.append(_observed(batch_id, run_id, began, ended, clock_ms, run.clock_ms))
            if batch.reports_again and not batch.again_is_lost:
                position = source({"orders": ended})
                received.append(
                    repeated(
                        batch_id,
                        run_id=run_id,
                        sources=[position],
                        observed_at=clock_ms + 500,
                        processed_at=clock_ms + run.clock_ms,
                    )
                )
    return received, truth


def _observed(
    batch_id: int,
    run_id: str,
    began: dict[int, int],
    ended: dict[int, int],
    clock_ms: int,
    wrong_ms: int,
) -> Observation:
    return output(
        batch_id,
        source({"orders": ended}, {"orders": began}),
        run_id=run_id,
        processed_at=clock_ms + wrong_ms,
        observed_at=clock_ms + 100,
        batch=Batch(started_at=clock_ms - 900 + wrong_ms, rows=1),
    )


def _recorded_with(repeats: list[Again], received: list[Observation]) -> list[BatchRecord]:
    chain = BatchSequence()
    records: list[BatchRecord] = []
    for number, one in enumerate(received):
        chain, added = linked(chain, one)
        records += added.records
        for again in repeats:
            if again.at != number:
                continue
            if again.restarted:
                chain = BatchSequence.ending_with(records[-1] if records else None)
            for repeated_one in received[min(again.since, number) : number + 1]:
                chain, added = linked(chain, repeated_one)
                records += added.records
    return records
