"""The independent check: what was published, against what truly was. Pure.

It shares no code with the service, and none with the contracts: events are the JSON that was read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from tests.faults.history import Observed, QueryHistory, TopicLife
from tests.faults.recorder import Published

_NO_NUMBER: Final = frozenset({"RECREATED", "GONE", "UNKNOWN"})
"""In these states there is no lag, however much one could be computed."""
_STEPPED_READ_S: Final = 10.0
"""With a stepped clock an event's own time may say nothing: it was read so long before it came."""

Lives = Mapping[str, Sequence[TopicLife]]
Numbers = tuple[int, int, int]
"""Processed offset, latest offset, lag."""


@dataclass(frozen=True)
class Clock:
    """How far what events say of time may be from the truth."""

    tolerance_s: float = 1.0
    """The clock's granularity, and the way from the broker to whoever reads the clock."""
    offsets_s: Sequence[float] = (0.0,)
    """Of the service's clock from the true one: any of these, where it was stepped."""

    @property
    def stepped(self) -> bool:
        return len(self.offsets_s) > 1

    def moments(self, reported_ms: int, arrived_s: float) -> Iterator[tuple[float, float]]:
        for offset_s in self.offsets_s:
            at_s = reported_ms / 1000 - offset_s
            if at_s <= arrived_s + self.tolerance_s:
                yield at_s - self.tolerance_s, at_s + self.tolerance_s
        if self.stepped:
            yield arrived_s - _STEPPED_READ_S, arrived_s + self.tolerance_s


@dataclass(frozen=True)
class Span:
    began_s: float
    ended_s: float


@dataclass
class Verdict:
    events: int = 0
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    late: int = 0
    """Events that readers drop, because a newer one came before them."""
    longest_gap_s: float | None = None
    recovery_s: float | None = None
    """None where a query never recovered."""

    def complaints(self) -> str:
        result = [*self.lost, *self.wrong]
        more = [f"and {len(result) - 12} more"] if len(result) > 12 else []
        return "\n".join([*result[:12], *more])


class Truth:
    """What truly was, and what it makes of what was published."""

    def __init__(
        self, lives: Lives, queries: Mapping[str, QueryHistory], clock: Clock | None = None
    ) -> None:
        self._lives = lives
        self._queries = queries
        self._clock = clock or Clock()

    def judge(self, records: Iterable[Published], fault: Span) -> Verdict:
        records = sorted(records, key=lambda record: record.place)
        verdict = Verdict(events=len(records))
        for record in records:
            verdict.wrong += self.wrong_in(record)
        verdict.lost = list(self.lost(records))
        accepted, verdict.late = newest_first_observed(records)
        gaps = [longest_gap(accepted.get(q, ()), fault) for q in self._queries]
        verdict.longest_gap_s = max((gap for gap in gaps if gap is not None), default=None)
        times = [self.recovery(accepted.get(q, ()), fault.ended_s) for q in self._queries]
        known = [time_s for time_s in times if time_s is not None]
        verdict.recovery_s = max(known) if known and len(known) == len(times) else None
        return verdict

    def lost(self, records: Sequence[Published]) -> Iterator[str]:
        """Observations that no event covers: none at their position in time, or past it."""
        by_query: dict[str, list[Published]] = {}
        for record in records:
            by_query.setdefault(record.query_id, []).append(record)
        for query_id, history in self._queries.items():
            events = by_query.get(query_id, [])
            for index, offset in sorted(history.acknowledged.items()):
                observed = history.observed[index]
                if not any(_covers(event, observed, offset) for event in reversed(events)):
                    yield f"lost: observation {index} of {query_id}, {observed.observed_at_ms}"

    def wrong_in(self, record: Published) -> list[str]:
        """Sentences about each wrong value of one event."""
        event = record.event
        if event is None:
            return [f"a tombstone of {record.query_id}, which lives"]
        history = self._queries.get(record.query_id)
        if history is None or event["query_id"] != record.query_id:
            return [f"an event of a query that is none: {record.query_id}"]
        result: list[str] = []
        lags: list[int] = []
        unknown = 0
        for topic in event["topics"]:
            for partition in topic["partitions"]:
                lag = partition.get("lag")
                if lag is None:
                    unknown += 1
                    if not (partition.get("reason") or event.get("reason")):
                        result.append(f"{topic['topic']}[{partition['partition']}]: no reason")
                    continue
                lags.append(lag)
                problem = self._problem(record, history, topic["topic"], partition)
                if problem is not None:
                    result.append(f"{topic['topic']}[{partition['partition']}]: {problem}")
        total = sum(lags) if lags else None
        if event.get("total_lag") != total:
            result.append(f"total_lag {event.get('total_lag')}, the partitions sum up to {total}")
        if event.get("unknown_partitions", 0) != unknown:
            result.append(f"unknown_partitions {event.get('unknown_partitions')}, not {unknown}")
        return [f"wrong: {history.query_id} at {record.place}: {sentence}" for sentence in result]

    def final_problems(
        self, record: Published | None, query_id: str, ends: Mapping[str, Mapping[int, int]]
    ) -> list[str]:
        """What is not exact in the newest event once nothing moves any more.

        `ends` are the logs' ends, by a client that is not ours.
        """
        if record is None or record.event is None:
            return [f"final: nothing is published of {query_id}"]
        return final_problems(record.event, self.expected(query_id, ends))

    def expected(
        self, query_id: str, ends: Mapping[str, Mapping[int, int]]
    ) -> dict[tuple[str, int], Numbers | None]:
        last = self._queries[query_id].last
        expected: dict[tuple[str, int], Numbers | None] = {}
        for topic, positions in last.processed.items():
            if not self._lives_on(self._queries[query_id], topic):
                expected |= {(topic, number): None for number in positions}
                continue
            for number, end in ends[topic].items():
                # One that the query has not met yet it will read from its beginning.
                processed = positions.get(number, 0)
                expected[topic, number] = (processed, end, end - processed)
        return expected

    def recovery(self, events: Sequence[Published], ended_s: float) -> float | None:
        for record in events:
            if record.arrived_s >= ended_s and self.is_fresh(record, ended_s):
                return record.arrived_s - ended_s
        return None

    def is_fresh(self, record: Published, since_s: float) -> bool:
        """Whether all of it is known that can be, right, and not older than that moment.

        Neither the offsets, which were read after it, nor the position.
        """
        event = record.event
        if event is None or self.wrong_in(record):
            return False
        read_ms = [event["measured_at"]]
        history = self._queries[record.query_id]
        if not self._caught_up(event, history, since_s):
            return False
        for topic in event["topics"]:
            partitions = topic["partitions"]
            if self._lives_on(history, topic["topic"]) != all(
                partition.get("lag") is not None for partition in partitions
            ):
                return False
            read_ms += [p["measured_at"] for p in partitions if p.get("measured_at")]
        return all(
            any(sum(span) / 2 >= since_s for span in self._clock.moments(ms, record.arrived_s))
            for ms in read_ms
        )

    def _caught_up(self, event: Mapping[str, Any], history: QueryHistory, since_s: float) -> bool:
        by_then = [one for one in history.observed if one.sent_s <= since_s]
        if not by_then:
            return True
        reported = {
            (topic["topic"], partition["partition"]): partition.get("processed_offset")
            for topic in event["topics"]
            for partition in topic["partitions"]
        }
        for topic, positions in by_then[-1].processed.items():
            # With the topic created anew a query begins anew, and may be at a lower offset.
            if by_then[-1].lives[topic] != history.last.lives[topic]:
                continue
            for number, offset in positions.items():
                is_at = reported.get((topic, number))
                if is_at is None or is_at < offset:
                    return False
        return True

    def _lives_on(self, history: QueryHistory, topic: str) -> bool:
        return self._lives[topic][history.last.lives[topic]].died_s == float("inf")

    def _problem(
        self, record: Published, history: QueryHistory, topic: str, partition: Mapping[str, Any]
    ) -> str | None:
        event = record.event
        assert event is not None
        lag, number = partition["lag"], partition["partition"]
        processed, latest = partition.get("processed_offset"), partition.get("latest_offset")
        if partition["status"] in _NO_NUMBER:
            return f"{partition['status']} with lag {lag}"
        if processed is None:
            # Of a partition that was added: it will be read from its beginning.
            processed = partition.get("earliest_offset")
        if processed is None or latest is None:
            return f"lag {lag} from processed {processed} and latest {latest}"
        if lag < 0 or lag != latest - processed:
            return f"lag {lag} is not {latest} - {processed}"
        had = list(self._positions(history, topic, number, event["observed_at"], record.arrived_s))
        lives_of_it = {life for life, offset in had if offset == processed}
        if not lives_of_it:
            return f"processed_offset {processed} is none the query had then"
        reported_ms = partition.get("measured_at") or event["measured_at"]
        moments = list(self._clock.moments(reported_ms, record.arrived_s))
        bounds: list[str] = []
        for number_of_life in sorted(lives_of_it):
            life = self._lives[topic][number_of_life]
            log = life.logs.get(number)
            for from_s, until_s in moments:
                if log is None or not life.lived(from_s, until_s):
                    continue
                least, most = log.least_end(from_s), log.greatest_end(until_s)
                if least <= latest <= most:
                    return None
                bounds.append(f"{least} to {most}")
        truly = " or ".join(bounds) or "that the topic of this position was gone"
        return f"latest_offset {latest} at {reported_ms}, true is {truly}"

    def _positions(
        self, history: QueryHistory, topic: str, number: int, observed_at: int, arrived_s: float
    ) -> Iterator[tuple[int, int]]:
        """(life, offset) that the query had: then, if it is known when that was."""
        tolerated_s = arrived_s + self._clock.tolerance_s
        known = [one for one in history.observed if one.sent_s <= tolerated_s]
        exact = [one for one in known if one.observed_at_ms == observed_at]
        for one in exact or known:
            offset = one.processed.get(topic, {}).get(number)
            # A query reads a partition that was added from its beginning.
            yield one.lives[topic], 0 if offset is None else offset


def _covers(record: Published, observed: Observed, offset: int) -> bool:
    event = record.event
    if event is None or record.arrived_s < observed.sent_s:
        return False
    through = event.get("observation_offset")
    return event["observed_at"] >= observed.observed_at_ms or (
        through is not None and through >= offset
    )


def newest_first_observed(records: Sequence[Published]) -> tuple[dict[str, list[Published]], int]:
    """By query, the events a reader takes, in log order; and how many it drops by their version.

    `records` are in log order.
    """
    accepted: dict[str, list[Published]] = {}
    late = 0
    for record in records:
        if record.event is None:
            continue
        taken = accepted.setdefault(record.query_id, [])
        # With the topic created anew, readers begin anew too.
        same_life = taken and taken[-1].place[0] == record.place[0]
        if same_life and version(record) < version(taken[-1]):
            late += 1
        else:
            taken.append(record)
    return accepted, late


def version(record: Published) -> tuple[int, int]:
    assert record.event is not None
    return record.event["observed_at"], record.event["measured_at"]


def longest_gap(events: Sequence[Published], fault: Span) -> float | None:
    """The longest time without an event that touches the fault; None where there was no event."""
    arrived = sorted(record.arrived_s for record in events)
    first = max(0, bisect_left(arrived, fault.began_s) - 1)
    last = bisect_left(arrived, fault.ended_s)
    touched = arrived[first : last + 1]
    if len(touched) < 2:
        return None
    return max(later - earlier for earlier, later in pairwise(touched))


def gaps(events: Sequence[Published], span: Span) -> list[float]:
    arrived = sorted(r.arrived_s for r in events if span.began_s <= r.arrived_s <= span.ended_s)
    return [later - earlier for earlier, later in pairwise(arrived)]


def final_problems(
    event: Mapping[str, Any], expected: Mapping[tuple[str, int], Numbers | None]
) -> list[str]:
    """Differences between an event and what is expected of each partition."""
    reported: dict[tuple[str, int], Numbers | None] = {}
    for topic in event["topics"]:
        for partition in topic["partitions"]:
            processed = partition.get("processed_offset")
            numbers = (
                partition.get("earliest_offset") if processed is None else processed,
                partition.get("latest_offset"),
                partition.get("lag"),
            )
            # Without a lag the other two are only what is left to say.
            reported[topic["topic"], partition["partition"]] = (
                None if numbers[2] is None else numbers
            )
    missing = object()
    return [
        f"final: {event['query_id']} {topic}[{number}]: (processed, latest, lag) is"
        f" {reported.get((topic, number), 'missing')},"
        f" true is {expected.get((topic, number), 'none')}"
        for topic, number in sorted(reported.keys() | expected.keys())
        if reported.get((topic, number), missing) != expected.get((topic, number), missing)
    ]
