"""What it costs to say the lag, the age, the rates and the status of 10,000 partitions: CPU.

100 queries of two topics with 50 partitions each, a second apart: as records arrive and no batch
completes, as some queries complete one, and as all do in every pass. Beside it Burrow's rules as
they are written, over lists of the last ten commits of the same partitions.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Final

from benchmarks.comparison import Row, in_turn, say, within
from sparklag_schemas import Batch
from sparklag_service.enrichment.cluster_offsets import (
    MeasureTime,
    OffsetsByCluster,
    Topic,
    TopicOffsets,
)
from sparklag_service.enrichment.log_end_history import LatestOffset
from sparklag_service.evaluation.evaluator import EvaluatedQuery, Evaluator
from sparklag_service.tracking.query_state import QueryState, TrackedSource

BUDGET_MS: Final = 20.0
_QUERIES: Final = 100
_TOPICS_EACH: Final = 2
_PARTITIONS_EACH: Final = 50
PARTITIONS_OF_A_QUERY: Final = _TOPICS_EACH * _PARTITIONS_EACH
_PASSES: Final = 5
_ROUNDS: Final = 20
_WINDOW: Final = 10
_EPOCH_MS: Final = 1_790_000_000_000


def run() -> list[Row]:
    """A row for each course of things."""
    return [
        _row("records arrive, no batch completes", one_in=None),
        _row("a tenth of the queries complete a batch in each pass", one_in=10),
        _row("all of them do", one_in=1),
    ]


def _row(what: str, *, one_in: int | None) -> Row:
    say(f"evaluation: {what}")
    ours, burrow = OurRules(one_in), BurrowRules(one_in)
    for _ in range(3 * _WINDOW):
        ours.one_pass()
        burrow.one_pass()
    mine, theirs = in_turn(
        _ROUNDS,
        lambda: [ours.one_pass() for _ in range(_PASSES)],
        lambda: [burrow.one_pass() for _ in range(_PASSES)],
    )
    partitions = _QUERIES * PARTITIONS_OF_A_QUERY
    return within(
        f"evaluation of {partitions:,} partitions, {what}: CPU",
        mine,
        "Burrow's rules alone, as written",
        theirs,
        BUDGET_MS,
    )


class Workload:
    """Where logs end and queries are, pass by pass: 50 records a second come to each partition."""

    def __init__(self, one_in: int | None, queries: int = _QUERIES) -> None:
        """`one_in` so many queries completes a batch in each pass. None: no query does."""
        self._one_in = one_in
        self.queries = queries
        self.second = 0
        self.end = 5_000
        self.at = [4_000] * queries
        self.batch = [1] * queries
        """Of each query: the pass in which it was completed."""

    def one_pass(self) -> float:
        """Milliseconds of CPU, without what Kafka would have said."""
        self.advance()
        began_s = time.process_time()
        self.judge()
        return (time.process_time() - began_s) * 1_000

    def judge(self) -> None:
        """What is measured."""
        raise NotImplementedError

    def advance(self) -> None:
        self.second += 1
        self.end += 50
        for query in (
            range(self.second % self._one_in, self.queries, self._one_in) if self._one_in else ()
        ):
            self.at[query] = self.end - 75
            self.batch[query] = self.second


class OurRules(Workload):
    def __init__(self, one_in: int | None, queries: int = _QUERIES) -> None:
        super().__init__(one_in, queries)
        self._said: dict[str, TopicOffsets] = {}
        self._offsets: OffsetsByCluster = {"default": self._said}
        self._evaluator = Evaluator("service", 60.0)
        self._states: list[QueryState] = []
        self.last: list[EvaluatedQuery | None] = [None] * queries
        for query in range(queries):
            for name in _topics(query):
                topic = Topic("id", tuple(range(_PARTITIONS_EACH)))
                self._said[name] = TopicOffsets(topic, 0.0)

    def advance(self) -> None:
        super().advance()
        now_s = 1_000.0 + self.second
        for said in self._said.values():
            numbers = range(_PARTITIONS_EACH)
            said.latest["read_uncommitted"] = {
                number: LatestOffset(self.end, now_s) for number in numbers
            }
            said.earliest = dict.fromkeys(numbers, 0)
        self._states = [self._state(query) for query in range(self.queries)]

    def judge(self) -> None:
        now_s = 1_000.0 + self.second
        moment = MeasureTime(_EPOCH_MS + self.second * 1_000, now_s + 0.01, now_s)
        for query, state in enumerate(self._states):
            for name in _topics(query):
                self._said[name].record_log_ends("read_uncommitted", now_s, 1.0)
            self.last[query] = self._evaluator.evaluate(
                state,
                self._offsets,
                moment,
                event_id="",
                cause="refresh",
                previous=self.last[query],
            )

    def _state(self, query: int) -> QueryState:
        at = dict.fromkeys(range(_PARTITIONS_EACH), self.at[query])
        source = TrackedSource(source=0, processed={name: dict(at) for name in _topics(query)})
        number = self.batch[query]
        return QueryState(
            query_id=str(query),
            run_id="run",
            query=f"query-{query}",
            cluster="default",
            observed_at=_EPOCH_MS + number * 1_000,
            sources=(source,),
            batch_id=number,
            processed_at=_EPOCH_MS + number * 1_000,
            batch=Batch(started_at=0, rows=5_000, duration_ms=800),
        )


class BurrowRules(Workload):
    def __init__(self, one_in: int | None, queries: int = _QUERIES) -> None:
        super().__init__(one_in, queries)
        self._commits: list[list[deque[tuple[int, float, int]]]] = [
            [
                deque([(at, 0.0, self.end - at)], maxlen=_WINDOW)
                for _ in range(PARTITIONS_OF_A_QUERY)
            ]
            for at in self.at
        ]
        self._ends: list[list[deque[int]]] = [
            [deque(maxlen=_WINDOW) for _ in range(PARTITIONS_OF_A_QUERY)] for _ in self.at
        ]

    def judge(self) -> None:
        now_s, end = float(self.second), self.end
        for query, at in enumerate(self.at):
            commit = (at, now_s, end - at) if self.batch[query] == self.second else None
            for commits, ends in zip(self._commits[query], self._ends[query], strict=True):
                ends.append(end)
                if commit is not None:
                    commits.append(commit)
                _status(list(commits), ends, end, now_s)


def _status(
    commits: list[tuple[int, float, int]], ends: deque[int], latest: int, now_s: float
) -> str:
    last = commits[-1][0]
    if latest - last <= 0:
        return "OK"
    lasted_s = commits[-1][1] - commits[0][1]
    if now_s - commits[-1][1] > lasted_s and not any(end <= last for end in ends):
        return "STOP"
    for index in range(1, len(commits)):
        if commits[index][0] < commits[index - 1][0]:
            return "REWIND"
    if any(lag <= 0 for _, _, lag in commits):
        return "OK"
    if all(offset == last for offset, _, _ in commits):
        return "STALL"
    for index in range(1, len(commits)):
        if commits[index][2] < commits[index - 1][2]:
            return "OK"
    return "WARN"


def _topics(query: int) -> Iterator[str]:
    return (f"topic-{query}-{number}" for number in range(_TOPICS_EACH))
