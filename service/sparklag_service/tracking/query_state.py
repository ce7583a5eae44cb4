"""The state of a query, from observations alone. Pure values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from sparklag_schemas import LagEvent, Observation, SourcePosition, TopicLag
from sparklag_schemas.messages.enumerations import StartingOffsets, traits_of
from sparklag_schemas.messages.lag_event import Run, Runs
from sparklag_schemas.messages.observation import QueryMessage
from sparklag_schemas.messages.query_names import is_over

_RUNS_KEPT: Final = 4
_CLOCK_AHEAD_MS: Final = 300_000


class TrackedSource(SourcePosition, frozen=True, kw_only=True):
    """The position of a query in one source, and the cluster of its offsets."""

    cluster: str | None = "default"
    """Alias of the source's Kafka cluster. None: the cluster is not configured."""
    matched: tuple[str, ...] = ()
    unlisted: str | None = None
    """Why topics that match may be missing in `matched`."""

    def watched_topics(self) -> list[str]:
        """Topics to measure: named, assigned, matched, processed or planned."""
        with_offsets = {*(self.processed or ()), *(self.planned or ()), *self.matched}
        return sorted({*(self.topics or ()), *(self.assigned or ()), *with_offsets})

    def watched_partitions(self, topic: str, existing: Iterable[int]) -> list[int]:
        """Partitions to measure of a topic: those with a position and those assigned; without an
        assignment all `existing` ones, also before Spark plans them."""
        positioned = (self.processed or {}).get(topic, ())
        if self.assigned is not None:
            return sorted({*positioned, *self.assigned.get(topic, ())})
        return sorted({*positioned, *existing})


class MeasureTime(NamedTuple):
    """When a query is measured. Offsets requested from `requested_s` on follow its position."""

    now_ms: int
    """Epoch milliseconds."""
    now_s: float
    requested_s: float
    """`time.monotonic()`, like `now_s`."""

    def monotonic_s(self, epoch_ms: int) -> float:
        """`epoch_ms` on the monotonic clock, in seconds."""
        return self.now_s - (self.now_ms - epoch_ms) / 1000

    def epoch_ms(self, monotonic_s: float) -> int:
        """`monotonic_s` in epoch milliseconds."""
        return self.now_ms - round((self.now_s - monotonic_s) * 1000)


class PastRun(NamedTuple):
    """A previous run of a query, which may still run beside the current run."""

    written_at_ms: int
    """When it wrote its last message, by its own driver's clock."""
    received_at_ms: int
    """When that message was received, by this service's clock."""


class QueryState(QueryMessage, frozen=True, kw_only=True):
    """A query as its observations describe it. A new observation makes a new state."""

    sources: tuple[TrackedSource, ...]
    """Their `planned` offsets are of batch `planned_batch_id`, which is later than `batch_id`."""
    checkpoint_batch_id: int | None = None
    """The checkpoint's last completed batch. None: not read by this instance."""
    driver_written_at_ms: int = 0
    """When its driver wrote its last message, by the driver's clock. 0: never."""
    ended: bool = False
    observation_offset: int | None = None
    run_written_since_ms: int = 0
    """`driver_written_at_ms` of this run's first message."""
    run_received_at_ms: int = 0
    """When its last message was received, by this service's clock."""
    recent: tuple[tuple[int, str], ...] = ()
    """Time and cause of this run's last messages, as written. After the end of the run, or a later
    batch, they identify repeated messages."""
    run_wrote_once: bool = False
    """True while this run has written one message and follows another run: it may be forged."""
    past_runs: Mapping[str, PastRun] = {}
    """The last runs by run id, newest first."""
    other_run_id: str | None = None
    """A past run that still runs beside the current run."""
    idle_at_ms: int = 0
    """When its driver last reported that it waits, by the driver's clock. 0: never."""
    runs: Runs | None = None
    """None: no driver has reported it."""

    @property
    def has_position(self) -> bool:
        return any(source.processed is not None for source in self.sources)

    @property
    def has_members(self) -> bool:
        return self.group is not None and bool(self.group.members)

    @property
    def unassigned(self) -> Mapping[str, Sequence[int]]:
        """Partitions that no member of the consumer group reads, by topic."""
        return (self.group.unassigned if self.group is not None else None) or {}


def identity(message: QueryMessage) -> dict[str, Any]:
    """The fields that identify the query of a message."""
    return {name: getattr(message, name) for name in _IDENTITY}


def query_fields(message: QueryMessage) -> dict[str, Any]:
    """The fields of a query in any message, except `schema_version`, which differs by kind."""
    return {name: getattr(message, name) for name in _QUERY_FIELDS}


_IDENTITY = ("cluster", "query_id", "run_id", "query", "origin", "observed_at")
_QUERY_FIELDS = [name for name in QueryMessage.__struct_fields__ if name != "schema_version"]


def restored(event: LagEvent) -> QueryState:
    """The state that `event` was measured from."""
    by_source: dict[int, list[TopicLag]] = {}
    for topic in event.topics:
        by_source.setdefault(topic.source, []).append(topic)
    has_batch = event.batch_id is not None or event.processed_at is not None
    return QueryState(
        **query_fields(event),
        sources=tuple(_source_of(i, by_source[i], has_batch) for i in sorted(by_source)),
        checkpoint_batch_id=event.batch_id if traits_of(event.origin).is_checkpoint else None,
        driver_written_at_ms=_written_at_ms(event) if event.run_id is not None else 0,
        ended=is_over(event),
        runs=event.runs,
        observation_offset=event.observation_offset,
        run_written_since_ms=event.observed_at,
        run_received_at_ms=event.measured_at,
        past_runs={event.other_run_id: PastRun(0, event.measured_at)} if event.other_run_id else {},
        other_run_id=event.other_run_id,
    )


def runs_after(
    observation: Observation, runs: Runs | None, at_ms: int, idle_at_ms: int, *, is_new_run: bool
) -> Runs:
    """The runs after a driver's message of `at_ms`; its query was idle at `idle_at_ms`."""
    if runs is None:
        runs = Runs(first_at=at_ms, started_at=at_ms, reported_at=at_ms)
    started_at = at_ms if is_new_run else runs.started_at
    ended = observation.cause == "terminated"
    if not ended:
        return replace(runs, started_at=started_at, reported_at=at_ms, ended=False)
    finished, is_end = runs.finished, is_new_run or not runs.ended
    has_failed = is_end and observation.exception is not None
    # Without the trigger: a query that waits for data does not end by itself.
    may_end = observation.ends_by_itself
    may_end = idle_at_ms < started_at if may_end is None else may_end
    if is_end and may_end and not (has_failed or observation.driver_end):
        finished = [*finished, Run(started_at=started_at, ended_at=at_ms)][-_RUNS_KEPT:]
    return replace(
        runs,
        started_at=started_at,
        reported_at=at_ms,
        ended=True,
        failed=runs.failed + has_failed,
        finished=finished,
    )


def _written_at_ms(event: LagEvent) -> int:
    """When the driver wrote its last message, at least: `observed_at` is limited to the time of its
    receipt, `processed_at` is not."""
    ahead_ms = (event.processed_at or 0) - event.observed_at
    return event.observed_at + ahead_ms if 0 < ahead_ms <= _CLOCK_AHEAD_MS else event.observed_at


def _source_of(index: int, topics: Sequence[TopicLag], has_batch: bool) -> TrackedSource:
    first = topics[0]
    processed: dict[str, dict[int, int]] = {}
    planned: dict[str, dict[int, int]] = {}
    for topic in topics:
        for partition in topic.partitions:
            number = partition.partition
            if partition.processed_offset is not None:
                processed.setdefault(topic.topic, {})[number] = partition.processed_offset
            if partition.planned_offset is not None:
                planned.setdefault(topic.topic, {})[number] = partition.planned_offset
    # A lag without positions: the query began, in partitions that no longer exist.
    has_begun = bool(processed) or (
        has_batch and any(topic.total_lag is not None for topic in topics)
    )
    return TrackedSource(
        source=index,
        isolation_level=first.isolation_level,
        processed=processed if has_begun else None,
        topics=[topic.topic for topic in topics],
        assigned={t.topic: [p.partition for p in t.partitions] for t in topics}
        if first.assigned
        else None,
        cluster=first.cluster,
        planned=planned or None,
        starting=None if has_begun else _starting_of(topics),
    )


def _starting_of(topics: Sequence[TopicLag]) -> StartingOffsets | None:
    """Where the first batch starts, by the lag before it."""
    if all(topic.total_lag is None for topic in topics):
        return None
    return {
        topic.topic: {
            each.partition: -1 if each.lag is None else (each.latest_offset or 0) - each.lag
            for each in topic.partitions
        }
        for topic in topics
    }


def fitting(
    sources: Sequence[TrackedSource], index: int, topics: Collection[str]
) -> TrackedSource | None:
    """The source that reads `topics`, by preference the source with `index`. None: no source does.

    Spark may number the sources in another order than the plan, so the topics decide.
    """
    able = [s for s in sources if s.topics is None or set(topics) <= {*s.topics}]
    return next((source for source in able if source.source == index), able[0] if able else None)
