"""What may not grow unnoticed: instructions and memory of the service's usual work.

They are counted and not timed, so that a busy machine has the same figures: the instructions of the
interpreter and the calls into C of a fixed workload, and the bytes that are held after it
(`tracemalloc`). Each is a ratio to a yardstick that is counted in the same run: Burrow's rules for
as many partitions, and the events' own JSON. Versions of Python differ in both sides alike.

`python -m benchmarks.gate` exits with 1 where one is 20 % above what `gate.json` has;
`python -m benchmarks.gate --record` writes that file anew.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

from benchmarks.comparison import Row, print_table, times
from benchmarks.evaluation import PARTITIONS_OF_A_QUERY, BurrowRules, OurRules
from sparklag_schemas import LagEvent, Observation, Settings, SourcePosition
from sparklag_schemas.codec import decode_lag_event, encode
from sparklag_service.evaluation.evaluator import EvaluatedQuery
from sparklag_service.instance_state import InstanceState
from sparklag_service.intakes.topic import TopicIntake
from sparklag_service.metrics.exposition import Exposition
from sparklag_service.pipeline import Pipeline
from sparklag_service.publishing.published_query import Cadence
from sparklag_service.tracking.query_state import QueryState
from sparklag_service.tracking.tracker import Tracker
from sparklag_service.view.feed import Arrival
from sparklag_service.view.view import Entry

WORSE: Final = 1.2
_RECORDED: Final = Path(__file__).with_name("gate.json")
_QUERIES: Final = 10
_PASSES: Final = 40
"""More than a query's history has commits."""
_EPOCH_MS: Final = 1_790_000_000_000


class Count:
    """Counts the interpreter's instructions and its calls into C while entered."""

    total = 0

    def __enter__(self) -> Count:
        sys.setprofile(self._profile)
        sys.settrace(self._trace)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)
        sys.setprofile(None)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            self.total += 1
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._trace

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        self.total += event == "c_call"


def count(run: Callable[[], object]) -> int:
    """The instructions of one call."""
    with Count() as counted:
        run()
    return counted.total


def ratios() -> dict[str, float]:
    """Each figure, by what it is of."""
    partitions = _QUERIES * PARTITIONS_OF_A_QUERY
    yardstick = _burrow(one_in=1)
    return {
        "tracking an observation": _tracking() / yardstick,
        "evaluation, records arrive": _evaluation(one_in=None) / yardstick,
        "evaluation, every query completes a batch": _evaluation(one_in=1) / yardstick,
        **{what: value / yardstick for what, value in _event_and_scrape().items()},
        "memory held": _held_bytes() / (partitions * _document_bytes()),
    }


def _burrow(*, one_in: int) -> float:
    rules = BurrowRules(one_in, _QUERIES)
    for _ in range(_PASSES):
        rules.one_pass()
    rules.advance()
    return count(rules.judge)


def _evaluation(*, one_in: int | None) -> float:
    rules = OurRules(one_in, _QUERIES)
    for _ in range(_PASSES):
        rules.one_pass()
    rules.advance()
    return count(rules.judge)


def _tracking() -> float:
    """Each query is seen to have completed a batch."""
    tracker = Tracker(lambda _, alias: alias)
    states: dict[str, QueryState] = {}

    def track(observations: Iterable[Observation]) -> None:
        for each in observations:
            change = tracker.observe(states.get(each.query_id), each)
            if change is not None:
                states[each.query_id] = change.state

    for second in range(_PASSES):
        track(_observation(query, second) for query in range(_QUERIES))
    observations = [_observation(query, _PASSES) for query in range(_QUERIES)]
    return count(lambda: track(observations))


def _observation(query: int, second: int) -> Observation:
    return Observation(
        observation_id="",
        query_id=str(query),
        run_id="run",
        query=f"query-{query}",
        cause="progress",
        observed_at=_EPOCH_MS + 1_000 * second,
        batch_id=second,
        sources=[
            SourcePosition(
                source=0,
                processed={
                    f"topic-{query}": dict.fromkeys(range(PARTITIONS_OF_A_QUERY), 50 * second)
                },
            )
        ],
    )


def _event_and_scrape() -> dict[str, float]:
    service = _Service()
    for _ in range(_PASSES):
        service.one_pass()
    service.rules.one_pass()
    return {
        "lag events: due, encoded, read again, history and live stream": count(service.publish),
        "scrape": count(service.scrape),
    }


class _Service:
    """What a service holds of its queries, and does, without Kafka and HTTP."""

    def __init__(self) -> None:
        servers = "127.0.0.1:1"
        settings = Settings(bootstrap_servers=servers).resolved(servers)
        self.rules = OurRules(1, _QUERIES)
        self._pipeline = Pipeline(settings, partial(TopicIntake, settings), "service")
        self._exposition = Exposition(InstanceState(self._pipeline))
        self._cadences = defaultdict[str, Cadence](partial(Cadence, settings))

    def one_pass(self) -> None:
        """All queries complete a batch, and their lag is published and scraped."""
        self.rules.one_pass()
        self.publish()
        self.scrape()

    def events(self) -> list[LagEvent]:
        """As evaluated last."""
        return [last.event for last in self.rules.last if isinstance(last, EvaluatedQuery)]

    def publish(self) -> None:
        """Publish those events, which come back by the topic."""
        now_s, pipeline = float(self.rules.second), self._pipeline
        for event in self.events():
            cadence = self._cadences[event.query_id]
            if not cadence.due(event, now_s):
                raise RuntimeError(f"{event.display_name} is not due")
            cadence.published(event, now_s)
            document = encode(event)
            read = decode_lag_event(document)
            pipeline.view.put(Entry(read, document, now_s, 0, self.rules.second))
            at_ms = _EPOCH_MS + 1_000 * self.rules.second
            arrival = Arrival(event.query_id, 0, self.rules.second, at_ms, read, document)
            for follower in (pipeline.live, pipeline.history):
                follower.arrived(arrival)

    def scrape(self) -> None:
        """As Prometheus does."""
        asyncio.run(self._exposition.render("", ""))


def _held_bytes() -> int:
    gc.collect()
    tracemalloc.start()
    service = _Service()
    for _ in range(_PASSES):
        service.one_pass()
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held


def _document_bytes() -> float:
    """Of a partition in the JSON of a lag event."""
    rules = OurRules(1, 1)
    rules.one_pass()
    (last,) = rules.last
    assert last is not None
    return len(encode(last.event)) / PARTITIONS_OF_A_QUERY


def main(arguments: list[str]) -> int:
    """Exit code: 1 where a figure is worse than what is recorded, or is not recorded."""
    figures = {what: round(ratio, 3) for what, ratio in ratios().items()}
    if arguments == ["--record"]:
        _RECORDED.write_text(json.dumps(figures, indent=2) + "\n")
        return 0
    recorded: dict[str, float] = json.loads(_RECORDED.read_text())
    rows = [
        Row(
            what,
            times(ratio),
            times(recorded[what]) if what in recorded else "not recorded",
            times(ratio / recorded[what]) if what in recorded else "",
            f"≤ {times(WORSE)}",
            what in recorded and ratio <= WORSE * recorded[what],
        )
        for what, ratio in figures.items()
    ]
    print_table(rows)
    return 0 if all(row.reached for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
