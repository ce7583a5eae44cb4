"""What makes a status one that can be trusted, each rule against what is true in the world."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import inf
from typing import Final, NamedTuple

from sparklag_schemas import LagEvent, PartitionLag, TopicLag
from tests.simulation.clock import Process
from tests.simulation.kafka import Log, SimulatedKafka
from tests.simulation.personalities import FOREIGN
from tests.simulation.queries import SimulatedQuery

RULES: Final = (
    "evidence",
    "alarms",
    "sentences",
    "successors",
    "gone",
    "transactions",
    "recurrence",
)
_STALL_FACTOR, _STALL_AFTER_S = 3.0, 300.0
_OVERDUE_S: Final = 30.0
_SLACK_S: Final = 180.0
"""Until a fact is in an event: three refreshes."""
_CLOCKS_DIFFER_S: Final = 600.0
"""How well a service that reads drivers' clocks knows when a run began and ended."""
_OF_A_WINDOW: Final = ("WARN", "STALL")
_OF_AN_END: Final = ("STOP", "FAILED")


class _Verdict(NamedTuple):
    """On a query, or on a partition."""

    event: LagEvent
    key: tuple[str, int] | None
    status: str
    position: int | None
    lag: int


class Rules:
    """Each method that is named in RULES yields what is wrong with the newest event of a query."""

    def __init__(
        self,
        kafka: SimulatedKafka,
        queries: dict[str, SimulatedQuery],
        names: Collection[str] = RULES,
    ) -> None:
        self.hand_overs: set[tuple[str, Process, int]] = set()
        """Queries with an alarm, and owners that kept it: a process, by its assignment."""
        self._kafka = kafka
        self._queries = queries
        self._checks = [getattr(self, f"_{name}") for name in names]
        self._alarmed: dict[tuple[str, tuple[str, int] | None], _Verdict] = {}
        self._measured_s: dict[str, tuple[float, float]] = {}
        """Times of a query's last event without an unknown lag, and of the first after a gap."""
        self._owners: dict[str, tuple[Process, int]] = {}
        self._pauses: dict[str, list[tuple[float, float]]] = {}
        """When a query got another owner, and for how long it had no event."""

    def problem(self, event: LagEvent, writer: Process) -> str | None:
        """What is wrong with the event."""
        now_s, query = self._kafka.loop.now_s, self._queries[event.query_id]
        last_s, since_s = self._measured_s.get(event.query_id, (-inf, now_s))
        since_s = now_s if now_s - last_s > _SLACK_S else since_s
        self._measured_s[event.query_id] = last_s if event.unknown_partitions else now_s, since_s
        owner = writer, writer.assignments
        self._is_new_owner = self._owners.get(event.query_id, owner) != owner
        self._owners[event.query_id] = owner
        if self._is_new_owner:
            self._pauses.setdefault(event.query_id, []).append((now_s, now_s - last_s))
        problems = (text for check in self._checks for text in check(event, query, writer))
        return next(problems, None)

    def _evidence(self, event: LagEvent, query: SimulatedQuery, _: Process) -> Iterator[str]:
        """OK: nothing is left to read, or that was so recently, or a batch completed recently. The
        time from an owner's last event to the next one's first does not count."""
        if event.status != "OK" or not event.total_lag:
            return
        usual_s = max(event.usual_interval_s or 0.0, event.usual_batch_s or 0.0)
        allowed_s = max(_STALL_FACTOR * usual_s, _STALL_AFTER_S) + _SLACK_S
        since_s = max(query.completed_s, query.runs[-1][0], self._measured_s[event.query_id][1])
        allowed_s += sum(s for at_s, s in self._pauses.get(event.query_id, ()) if at_s > since_s)
        if (now_s := self._kafka.loop.now_s) - since_s <= allowed_s:
            return
        behind_s = min(self._behind_s(event), default=inf)
        if now_s - max(since_s, behind_s) > allowed_s:
            yield f"OK, and it completed nothing for {now_s - since_s:.0f} s"

    def _behind_s(self, event: LagEvent) -> Iterator[float]:
        """Since when records wait in partitions that can be read."""
        for _, p, log in self._logs(event):
            position, since_s = p.processed_offset, inf
            if position is None or not p.lag:
                continue
            for at_s, end in reversed(log.ends):
                if end <= position:
                    break
                since_s = at_s if end <= log.end - log.markers else since_s
            open_until_s = (end_s for first, end_s in log.transactions if first <= position)
            yield max(since_s, max(open_until_s, default=0.0))

    def _logs(self, event: LagEvent) -> Iterator[tuple[TopicLag, PartitionLag, Log]]:
        for topic in event.topics:
            described = self._kafka.topics_by_id.get(topic.topic_id or "")
            for p in topic.partitions:
                if described is not None and p.partition < len(described.logs):
                    yield topic, p, described.logs[p.partition]

    def _alarms(self, event: LagEvent, query: SimulatedQuery, writer: Process) -> Iterator[str]:
        """An alarm is left by contrary evidence alone; the end of a run, by a message that it has
        written since."""
        for now in _verdicts(event):
            last = self._alarmed.pop((event.query_id, now.key), None)
            if now.status in (*_OF_A_WINDOW, *_OF_AN_END):
                is_same = last is not None and last.status == now.status
                # A lag that is not known shows no evidence yet.
                kept = last if last is not None and is_same and not now.lag else now
                self._alarmed[event.query_id, now.key] = kept
                if is_same:
                    self.hand_overs.add((event.query_id, writer, writer.assignments))
            elif last is not None and now.status in ("UNKNOWN", "CONFLICT"):
                self._alarmed[event.query_id, now.key] = last
            elif last is not None and now.status == "OK" and not self._is_over(last, now, query):
                yield f"{now.key or 'query'}: {last.status} became OK without evidence"

    def _is_over(self, alarm: _Verdict, now: _Verdict, query: SimulatedQuery) -> bool:
        """Whether there is evidence against the alarm."""
        if alarm.status in _OF_AN_END:
            last = alarm.event.observation_offset or -1
            return any(at > last and at not in query.written_again for at, _ in query.arrived)
        before, after = (
            (-1 if e.batch_id is None else e.batch_id) for e in (alarm.event, now.event)
        )
        has_fallen = any(before < batch_id <= after for batch_id in query.fell.get(now.key, ()))
        if now.event.run_id != alarm.event.run_id or not now.lag or has_fallen:
            return True
        if (
            now.key is None
            and now.lag < alarm.lag
            and _topic_ids(now.event) != _topic_ids(alarm.event)
        ):
            return True  # A topic was created anew: its records are gone.
        if alarm.status == "STALL":
            has_moved = now.position != alarm.position if now.key else before < after
            return has_moved or now.lag < alarm.lag
        loss_at_ms = alarm.event.loss_expected_at
        if loss_at_ms is not None and (
            not self._is_new_owner or loss_at_ms < now.event.measured_at
        ):
            return True  # Retention may pause.
        # It waited for a transaction that has ended.
        return bool(_stable_ends(alarm.event) - _stable_ends(now.event))

    def _sentences(self, event: LagEvent, query: SimulatedQuery, _: Process) -> Iterator[str]:
        """No field contradicts the status."""
        is_over = event.status in (*_OF_AN_END, "FINISHED")
        if is_over and event.running_batch is not None:
            yield f"{event.status}, and a batch runs"
        if event.catch_up_s and (is_over or event.status == "STALL"):
            yield f"{event.status}, and it catches up in {event.catch_up_s:.0f} s"
        batch, usual_s = event.running_batch, event.usual_batch_s
        if batch is not None and usual_s is not None and event.catch_up_s:
            runs_s = (batch.observed_at - batch.started_at) / 1000
            if runs_s > max(_STALL_FACTOR * usual_s, _OVERDUE_S):
                yield f"a batch is overdue, and it catches up in {event.catch_up_s:.0f} s"
        if event.status == "OK" and any(v.status in _OF_A_WINDOW for v in _verdicts(event)):
            yield "OK, and a partition is not"

    def _successors(self, event: LagEvent, query: SimulatedQuery, _: Process) -> Iterator[str]:
        """A successor began after the query ended, and reads a topic that it read."""
        if event.superseded_by is None:
            return
        other = self._queries[event.superseded_by]
        ended = [run for run in query.runs if run[1] < inf] or query.runs
        began_s, ended_s = ended[-1]
        beside_s = max(min(end, ended_s) - max(begin, began_s) for begin, end in other.runs)
        if beside_s > _CLOCKS_DIFFER_S:
            yield f"superseded by a query that ran beside it for {beside_s:.0f} s"
        if not {*query.topics} & {*other.topics}:
            yield f"superseded by a query of {other.topics}, it reads {query.topics}"

    def _gone(self, event: LagEvent, query: SimulatedQuery, _: Process) -> Iterator[str]:
        """No topic is ever deleted here for longer than a moment; one is of another cluster."""
        for topic in event.topics:
            described = self._kafka.topics.get(topic.topic)
            for p in topic.partitions:
                exists = described is not None and p.partition < len(described.logs)
                if p.status == "GONE" and (exists or topic.topic == FOREIGN):
                    yield f"{topic.topic}[{p.partition}] is GONE"
                if topic.topic == FOREIGN and p.lag is not None:
                    yield f"{FOREIGN}[{p.partition}] has lag {p.lag}"
        if event.status == "GONE" and not any(
            p.status == "GONE" for topic in event.topics for p in topic.partitions
        ):
            yield "GONE, and no partition is"

    def _transactions(self, event: LagEvent, query: SimulatedQuery, _: Process) -> Iterator[str]:
        """Records behind an open transaction are told, where the query reads committed ones."""
        now_s = self._kafka.loop.now_s
        then_s = now_s - _SLACK_S
        if self._measured_s[event.query_id][1] > then_s:
            return
        for topic, p, log in self._logs(event):
            first = log.stable_end(then_s)
            is_open = first < log.end_at(then_s) and first == log.stable_end(now_s) < log.end
            is_told = topic.isolation_level != "read_committed" or p.open_transaction is not None
            if is_open and not is_told and p.lag is not None:
                waiting = log.end - first
                yield f"{topic.topic}[{p.partition}]: {waiting} records wait, and it is silent"

    def _recurrence(self, event: LagEvent, query: SimulatedQuery, _: Process) -> Iterator[str]:
        """Runs that came back and stay away are missed."""
        away_s = self._kafka.loop.now_s - query.runs[-1][1]
        is_away = query.is_recurring and away_s > 3 * (query.interval_s or 0.0) + _CLOCKS_DIFFER_S
        # While messages are read again an event may be of an earlier run.
        is_last = event.run_id == query.run_id and event.status == "FINISHED"
        if is_away and is_last and event.total_lag:
            yield f"FINISHED, and its runs stay away for {away_s:.0f} s"


def _verdicts(event: LagEvent) -> Iterator[_Verdict]:
    """On each partition; and on the query, where its status is not that of a partition."""
    is_own = True
    for topic in event.topics:
        for p in topic.partitions:
            is_own = is_own and p.status not in _OF_A_WINDOW
            key = topic.topic, p.partition
            yield _Verdict(event, key, p.status, p.processed_offset, p.lag or 0)
    if is_own:
        yield _Verdict(event, None, event.status, None, event.total_lag or 0)


def _topic_ids(event: LagEvent) -> set[str | None]:
    return {topic.topic_id for topic in event.topics}


def _stable_ends(event: LagEvent) -> set[tuple[str, int, int | None]]:
    partitions = ((topic.topic, p) for topic in event.topics for p in topic.partitions)
    return {(name, p.partition, p.latest_offset) for name, p in partitions if p.open_transaction}
