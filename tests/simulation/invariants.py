"""What must hold whatever happens. The truth is that of the simulated logs and drivers: nothing
here is computed by the service's code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import pairwise
from typing import Final

from aiokafka.structs import ConsumerRecord, TopicPartition

from sparklag_schemas import LagEvent, Observation, PartitionLag, TopicLag
from sparklag_schemas.codec import decode_lag_event
from tests.simulation.clock import Process
from tests.simulation.instances import Instance
from tests.simulation.kafka import SimulatedKafka, topic_id_text
from tests.simulation.queries import SimulatedQuery
from tests.simulation.rules import RULES, Rules

_START_MS: Final = 1_790_000_000_000
_MEASURING_S: Final = 6.0
"""How long after the request an event may be made: the service waits so long for a leader."""
_COMMITTED_S: Final = 60.0
"""From an observation until its commit: twice the interval, and more."""
_STATUSES: Final = {
    "running": {"OK", "WARN", "STALL", "RECREATED", "GONE", "DATA_LOSS", "REWIND", "UNKNOWN"},
    "finished": {"FINISHED"},
    "failed": {"FAILED"},
    "dead": {"STOP"},
}


class Violation(AssertionError):
    """An invariant does not hold."""


class Invariants:
    """Watches the logs, record by record and commit by commit."""

    def __init__(
        self,
        kafka: SimulatedKafka,
        queries: dict[str, SimulatedQuery],
        record: Callable[[ConsumerRecord], None],
        silent_after_s: float,
        rules: Collection[str] = RULES,
    ) -> None:
        """`record` gets every appended record. A driver is gone after `silent_after_s`."""
        self.rules = Rules(kafka, queries, rules)
        self._record = record
        self._silent_after_s = silent_after_s
        self._kafka = kafka
        self._queries = queries
        self.newest: dict[str, LagEvent] = {}
        """The event with the highest version of each query, as a reader of the topic has it."""
        self._acknowledged: dict[tuple[Process, int, str], tuple[int, int]] = {}
        self._observed: dict[TopicPartition, list[tuple[int, str]]] = {}
        self._covered: dict[str, int] = {}
        self.violation: Violation | None = None
        """The first; the simulation ends with it."""
        kafka.on_append = self._on_append
        kafka.on_commit = self._on_commit
        kafka.on_send = self._on_send
        kafka.on_acknowledged = self._on_acknowledged

    def _on_append(self, record: ConsumerRecord, writer: Process | None) -> None:
        self._record(record)
        if record.topic == "processed-offsets":
            partition = TopicPartition(record.topic, record.partition)
            query_id = record.key.decode()
            self._observed.setdefault(partition, []).append((record.offset, query_id))
        elif record.value is not None:
            self._check(self._event, decode_lag_event(record.value), writer)

    def _on_commit(self, partition: TopicPartition, offset: int, _: Process | None) -> None:
        self._check(self._committed, partition, offset)

    def _check(self, check: Callable[..., None], *args: object) -> None:
        try:
            check(*args)
        except Violation as violation:
            self.violation = self.violation or violation

    def _on_send(self, event: LagEvent, writer: Process) -> None:
        """Versions rise above those that are acknowledged, while it keeps its partitions."""
        last = self._acknowledged.get((writer, writer.assignments, event.query_id))
        if last is not None and event.version <= last:
            violation = Violation(
                f"event {event.event_id[:8]} of {event.query} by {writer}: its version"
                f" {event.version} does not rise above {last}"
            )
            self.violation = self.violation or violation

    def _on_acknowledged(self, event: LagEvent, writer: Process) -> None:
        self._acknowledged[writer, writer.assignments, event.query_id] = event.version

    def _event(self, event: LagEvent, writer: Process) -> None:
        query = self._queries[event.query_id]
        name = f"event {event.event_id[:8]} of {event.query} by {writer}"
        if event.status != "OK" and not event.reason:
            raise Violation(f"{name}: status {event.status} has no reason")
        if event.status == "STOP":
            self._silence(event, query, name)
        self._positions(event, query, name)
        for topic in event.topics:
            self._lags(event, topic, writer, name)
        known = [topic.total_lag for topic in event.topics if topic.total_lag is not None]
        if event.total_lag != (sum(known) if known else None):
            raise Violation(f"{name}: total_lag {event.total_lag} is not the sum of {known}")
        self._newer(event, query, writer, name)
        if event.observation_offset is not None:
            covered = self._covered.get(event.query_id, -1)
            self._covered[event.query_id] = max(covered, event.observation_offset)

    def _newer(self, event: LagEvent, query: SimulatedQuery, writer: Process, name: str) -> None:
        """A newer version is of no earlier observation; the dead stay dead until they speak."""
        newest = self.newest.get(event.query_id)
        if newest is not None:
            if event.version < newest.version:
                return
            assert event.observation_offset is not None
            assert newest.observation_offset is not None
            if event.observation_offset < newest.observation_offset:
                raise Violation(
                    f"{name}: of the observation at {event.observation_offset}, and an older"
                    f" version is of {newest.observation_offset}"
                )
            reported_nothing = query.arrived[-1][0] <= newest.observation_offset
            if reported_nothing and newest.status == "STOP" != event.status:
                raise Violation(f"{name}: it was STOP, is {event.status}, and nothing was reported")
        self.newest[event.query_id] = event
        problem = self.rules.problem(event, writer)
        if problem is not None:
            raise Violation(f"{name}: {problem}")

    def _silence(self, event: LagEvent, query: SimulatedQuery, name: str) -> None:
        first = event.observation_offset or 0
        since = [
            at_s
            for offset, at_s in query.arrived
            if offset == first or (offset > first and offset not in query.written_again)
        ]
        longest_s = max(b - a for a, b in pairwise([*since, self._kafka.loop.now_s]))
        if longest_s < self._silent_after_s:
            raise Violation(f"{name}: STOP, and its driver was silent for {longest_s:.1f} s")

    def _positions(self, event: LagEvent, query: SimulatedQuery, name: str) -> None:
        if event.observation_offset is None:
            raise Violation(f"{name}: it names no observation")
        if event.observation_offset in query.written_again:
            return
        if any(
            at == event.observation_offset and o.run_id != event.run_id for at, o in query.written
        ):
            # It is of another run, which was reported as a past one.
            return
        output = _as_of(query.written, event.observation_offset)
        for topic in event.topics:
            for partition in topic.partitions:
                true = output.get(topic.topic, {}).get(partition.partition)
                if partition.processed_offset != true:
                    raise Violation(
                        f"{name}: processed_offset {partition.processed_offset} of"
                        f" {topic.topic}[{partition.partition}], its driver reported {true}"
                        f" at {event.observation_offset}"
                    )

    def _lags(self, event: LagEvent, topic: TopicLag, writer: Process, name: str) -> None:
        for partition in topic.partitions:
            where = f"{name}: {topic.topic}[{partition.partition}]"
            if partition.lag is None:
                continue
            if partition.lag < 0 or partition.latest_offset is None:
                raise Violation(f"{where}: lag {partition.lag} of latest {partition.latest_offset}")
            if partition.processed_offset is not None:
                lag = partition.latest_offset - partition.processed_offset
                if partition.lag != max(0, lag) and partition.status == "OK":
                    raise Violation(f"{where}: lag {partition.lag} is not {lag}")
            self._latest(event, topic, partition, writer, where)

    def _latest(
        self, event: LagEvent, topic: TopicLag, partition: PartitionLag, writer: Process, where: str
    ) -> None:
        """The log ended there at some time between the request and now."""
        then = self._kafka.topics_by_id[topic.topic_id or ""]
        log, is_gone = (
            then.logs[partition.partition],
            self._kafka.topics.get(topic.topic) is not then,
        )
        if is_gone and log.end == 0:
            # First read just after its topic was created anew: nothing shows yet that it was.
            return
        measured_ms = partition.measured_at or event.measured_at
        requested_s = (measured_ms - _START_MS) / 1000 - _MEASURING_S
        stood_still_s, went_on_s = writer.stood_still_s
        if went_on_s >= requested_s:
            requested_s = min(requested_s, stood_still_s - _MEASURING_S)
        ends = log.ends_since(requested_s)
        earliest = 0 if is_gone else min(*ends, log.stable_end(requested_s))
        latest = partition.latest_offset
        assert latest is not None
        if not earliest <= latest <= max(ends):
            raise Violation(
                f"{where}: latest_offset {latest} was never between {measured_ms} and now:"
                f" it was {earliest} to {max(ends)}"
            )

    def _committed(self, partition: TopicPartition, offset: int) -> None:
        if offset > self._kafka.log(partition).end:
            raise Violation(f"{partition.topic}: {offset} is committed, beyond its end")
        observed = self._observed.get(partition, [])
        while observed and observed[0][0] < offset:
            at, query_id = observed.pop(0)
            if self._covered.get(query_id, -1) >= at:
                continue
            if at in self._queries[query_id].written_again or self._is_disputed(query_id, at):
                continue
            if any(of == query_id and later >= offset for later, of in observed):
                continue
            raise Violation(
                f"{partition.topic}[{partition.partition}]: {offset} is committed, and there is no"
                f" event of the observation at {at} of {self._queries[query_id].name}"
            )

    def _is_disputed(self, query_id: str, offset: int) -> bool:
        """Whether another run of the query is shown: one of the two is reported as its past."""
        (run_id,) = [each.run_id for at, each in self._queries[query_id].written if at == offset]
        newest = self.newest.get(query_id)
        return newest is not None and newest.run_id != run_id

    # Once everything is healed and had time.

    def at_rest(self, instances: Sequence[Instance], now_s: float, freshness_s: float) -> None:
        """Raises Violation."""
        self._views_agree(instances)
        self._owners(instances)
        self._all_committed()
        for query in self._queries.values():
            if query.written:
                self._reported(query, now_s, freshness_s)
        for instance in instances:
            assert instance.pipeline is not None
            pipeline = instance.pipeline
            if pipeline.tracked.unpublished:
                raise Violation(f"{instance.process}: observations wait though all is well")
            if len(pipeline.view) > len(self._queries):
                raise Violation(f"{instance.process}: its view has {len(pipeline.view)} queries")

    def _all_committed(self) -> None:
        for group in self._kafka.groups.values():
            for partition, offset in group.committed.items():
                end = self._kafka.log(partition).end_at(self._kafka.loop.now_s - _COMMITTED_S)
                if offset < end:
                    raise Violation(
                        f"{partition.topic}[{partition.partition}] ended at {end}"
                        f" {_COMMITTED_S:.0f} s ago, and {offset} is committed"
                    )

    def _views_agree(self, instances: Iterable[Instance]) -> None:
        for instance in instances:
            assert instance.pipeline is not None
            for query_id, event in self.newest.items():
                entry = instance.pipeline.view.get(query_id)
                version = None if entry is None else entry.event.version
                if version != event.version:
                    raise Violation(
                        f"{instance.process}: its view has version {version} of"
                        f" {event.query}, the topic has {event.version}"
                    )

    def _owners(self, instances: Sequence[Instance]) -> None:
        for query_id, query in self._queries.items():
            owners = [
                instance.process.name
                for instance in instances
                if instance.pipeline is not None and query_id in instance.pipeline.tracked
            ]
            if query.written and len(owners) != 1:
                raise Violation(f"{query.name} is measured by {owners}")

    def _reported(self, query: SimulatedQuery, now_s: float, freshness_s: float) -> None:
        event = self.newest.get(query.query_id)
        if event is None:
            raise Violation(f"{query.name} has no event")
        age_s = now_s - (event.measured_at - _START_MS) / 1000
        if age_s > freshness_s:
            raise Violation(f"{query.name}: its newest event is {age_s:.0f} s old ({query.life})")
        if query.is_unproven:
            return
        is_missed = event.status == "WARN" and (event.reason or "").startswith("has not run")
        if event.status not in _STATUSES[query.life] and not is_missed:
            raise Violation(f"{query.name} is {query.life}, and reported as {event.status}")
        self._ends_known(event)
        covered = self._covered.get(query.query_id, -1)
        newest = max(at for at, _ in query.written)
        if covered < newest:
            raise Violation(f"{query.name}: the observation at {newest} has no event")
        if event.observation_offset is not None and event.observation_offset < covered:
            raise Violation(
                f"{query.name}: its newest event is of {event.observation_offset},"
                f" an earlier one was of {covered}"
            )

    def _ends_known(self, event: LagEvent) -> None:
        """No log has grown since; so the lag of a dead query grows with its logs."""
        for topic in event.topics:
            current = self._kafka.topics.get(topic.topic)
            if current is None:
                continue
            is_same = topic.topic_id == topic_id_text(current.topic_id)
            for partition in topic.partitions:
                where = f"{event.query}: {topic.topic}[{partition.partition}]"
                end = current.logs[partition.partition].end
                if is_same and partition.latest_offset != end:
                    raise Violation(f"{where} ends at {end}, not at {partition.latest_offset}")
                if not is_same and partition.status != "RECREATED":
                    raise Violation(f"{where} was created anew, and is {partition.status}")


def _as_of(written: Sequence[tuple[int, Observation]], offset: int) -> dict[str, dict[int, int]]:
    """The positions as of the observation at `offset`: its own, or the last before it."""
    for at, observation in reversed(written):
        processed = observation.sources[0].processed
        if at <= offset and processed is not None:
            return processed
    return {}
