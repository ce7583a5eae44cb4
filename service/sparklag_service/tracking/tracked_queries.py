"""The records of the queries that this instance tracks: one for each query, within limits."""

from __future__ import annotations

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, KeysView, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from sparklag_schemas import LagEvent, Observation, ResolvedSettings
from sparklag_schemas.errors import OverLimit, SparklagError
from sparklag_schemas.messages.enumerations import traits_of
from sparklag_schemas.messages.observation import QueryMessage
from sparklag_schemas.runtime.logs import log_fields
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.text.printable import printable
from sparklag_service.counters import Counters
from sparklag_service.intakes import Delivery
from sparklag_service.intakes.sources import longest_interval_s
from sparklag_service.tracking.query_state import QueryState, identity, restored

_log = logging.getLogger(__name__)
_FAILING_STAGES: Final = ("tracking", "enrichment", "evaluation", "publishing")
_TRACES: Final = 1_000
_MISSED_S = 5.0
"""Messages may be missed if `caught_up` is called this much later than a refresh interval."""
_SILENT_INTERVALS: Final = 3
"""A checkpoint or group that was not read for this many of its intervals has no known position."""


@dataclass(eq=False, repr=False)
class Liveness:
    """Decides whether a query is silent: a living driver sends a message at each heartbeat.

    A query is silent after `limit_s` without a message while this instance received all messages.
    While Kafka does not respond, and for `limit_s` afterwards, no query becomes silent.
    """

    _limit_s: float
    _refresh_interval_s: float
    """`caught_up` is called at each refresh."""
    _connected_since_s: float | None = None
    _caught_up_s: float = 0.0

    def caught_up(self, at_s: float) -> None:
        """Every message written up to `at_s` was received."""
        longest_gap_s = self._refresh_interval_s + _MISSED_S
        if self._connected_since_s is None or at_s - self._caught_up_s > longest_gap_s:
            self._connected_since_s = at_s
        self._caught_up_s = at_s

    def is_over(self, received_s: float | None) -> bool:
        """Returns whether a query with its last message at `received_s` is silent."""
        if self._connected_since_s is None or received_s is None:
            return False
        return self._caught_up_s - max(received_s, self._connected_since_s) > self._limit_s


@dataclass(slots=True)
class TrackedQuery:
    state: QueryState
    partitions: int = 0
    """Partitions that count against the limit."""
    pending: Delivery | None = None
    """The newest delivery that no acknowledged event covers yet."""
    failures: dict[str, str] = field(default_factory=dict)
    """The failure of each stage's last run, in a sentence."""
    received_s: float | None = None
    """When its last message was received (`time.monotonic()`)."""
    is_silent: bool = False
    """True if the query became silent after its last message."""

    def received(self, at_s: float) -> None:
        """A message of the query was received: it is alive."""
        self.received_s, self.is_silent = at_s, False

    def covered(self, state: QueryState) -> Delivery | None:
        """The delivery that an event measured from `state` covers."""
        return self.pending if self.state is state else None

    def take_covered(self, state: QueryState) -> Delivery | None:
        covered = self.covered(state)
        if covered is not None:
            self.pending = None
        return covered

    @property
    def failure(self) -> str | None:
        """A failure, in a sentence. None: no stage failed."""
        return next(iter(self.failures.values()), None)


class TrackedQueries(Mapping[str, QueryState]):
    """The newest state of each query, by id. A query beyond the limits is refused; admitted queries
    stay. Each delivery is settled when an event that covers it is acknowledged, or dropped for the
    next owner of its query."""

    def __init__(
        self, settings: ResolvedSettings, queue: NewestQueue[Delivery], counters: Counters
    ) -> None:
        self._records: dict[str, TrackedQuery] = {}
        self._queue = queue
        self._counters = counters
        self._limits = settings.limits
        self._offsets_topic = settings.offsets_topic
        self.partitions = 0
        """Sum of all queries' partitions."""
        self.is_full = False
        """True if a limit was exceeded since this was last set to False."""
        self.failures: Counter[str] = Counter(dict.fromkeys(_FAILING_STAGES, 0))
        """Failures with one query, by stage."""
        self._traced: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        refresh_s = settings.refresh_interval_s
        self._drivers = Liveness(settings.silent_after_s, refresh_s)
        self._watched = Liveness(_SILENT_INTERVALS * longest_interval_s(settings), refresh_s)
        """The clock of queries without a driver: a checkpoint or group that cannot be read."""

    def __getitem__(self, query_id: str) -> QueryState:
        return self._records[query_id].state

    def __contains__(self, query_id: object) -> bool:
        return query_id in self._records

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def keys(self) -> KeysView[str]:
        """The query ids, as fast as the keys of a dictionary."""
        return self._records.keys()

    def record(self, query_id: str) -> TrackedQuery | None:
        return self._records.get(query_id)

    def track(self, state: QueryState, partitions: int = 0) -> TrackedQuery:
        """Keep the newest state of a query. Raises OverLimit if a new query, or more partitions
        than before, exceed a limit."""
        record = self._records.get(state.query_id)
        if record is None:
            if len(self._records) >= self._limits.queries:
                self.is_full = True
                raise OverLimit(
                    f"already {self._limits.queries:,} queries on this instance (limits.queries)"
                )
            record = TrackedQuery(state)
            self.admit(record, partitions)
            self._records[state.query_id] = record
        elif partitions > record.partitions:
            self.admit(record, partitions)
        record.state = state
        return record

    def admit(self, record: TrackedQuery, partitions: int) -> None:
        """Set the number of a query's partitions. Raises OverLimit if it rises beyond the limit."""
        total = self.partitions - record.partitions + partitions
        if partitions > record.partitions and total > self._limits.watched_partitions:
            self.is_full = True
            raise OverLimit(
                f"its {partitions:,} partitions exceed the {self._limits.watched_partitions:,} of"
                " this instance (limits.watched_partitions)"
            )
        record.partitions, self.partitions = partitions, total

    def adopt(self, event: LagEvent, now_s: float) -> None:
        """Track the query of `event` from the position in it. Raises OverLimit."""
        record = self._records.get(event.query_id) or self.track(
            restored(event), sum(len(topic.partitions) for topic in event.topics)
        )
        record.received_s = now_s
        was_silent = event.status == "STOP" and event.run_id is not None
        record.is_silent = event.measured_by == "embedded" or was_silent

    def release(self, query_id: str) -> None:
        """Stop tracking a query, and drop its pending delivery."""
        record = self._records.pop(query_id, None)
        if record is not None:
            self.partitions -= record.partitions
            self.drop(record.pending)
            for key in [key for key in self._traced if key[0] == query_id]:
                del self._traced[key]

    def expired(self, observed_before_ms: int) -> Iterator[str]:
        """Ids of queries whose last message is older than `observed_before_ms` (stopped, failed or
        dead), and of consumer groups that were deleted."""
        return (
            query_id
            for query_id, record in self._records.items()
            if record.state.observed_at < observed_before_ms
            or (record.state.ended and not traits_of(record.state.origin).keeps_ended)
        )

    @property
    def shares(self) -> dict[str, tuple[int, int]]:
        """The use of each limit: setting to (used, limit)."""
        return {
            "queries": (len(self._records), self._limits.queries),
            "watched_partitions": (self.partitions, self._limits.watched_partitions),
        }

    # Liveness

    def caught_up(self, drivers_at_s: float | None) -> None:
        """Every message of the drivers written up to `drivers_at_s` was received (None: unknown),
        and every watcher has run."""
        if drivers_at_s is not None:
            self._drivers.caught_up(drivers_at_s)
        self._watched.caught_up(time.monotonic())

    def is_silent(self, record: TrackedQuery) -> bool:
        """Returns whether the query's driver is silent; without a driver, whether its position can
        no longer be read."""
        liveness = self._watched if record.state.run_id is None else self._drivers
        record.is_silent = record.is_silent or liveness.is_over(record.received_s)
        return record.is_silent

    # Pending deliveries

    @property
    def unpublished(self) -> int:
        """Number of queries whose newest delivery is in no acknowledged event yet."""
        return sum(record.pending is not None for record in self._records.values())

    def add_pending(self, record: TrackedQuery, delivery: Delivery) -> None:
        """Make `delivery` pending, and settle an older one, which it covers. A watcher's delivery
        does not replace a driver's, which gives the cause of the event. It is settled at once: the
        watcher reads its source again."""
        older = record.pending
        if older is not None:
            if _is_driver(older) and not _is_driver(delivery):
                self.settle(delivery)
                return
            self._counters.superseded += 1
            self.settle(older)
        record.pending = delivery

    def put_back(self, delivery: Delivery) -> None:
        """Make a delivery pending again, because its event was not published. It is settled if a
        newer one is pending, and dropped if its query was released."""
        record = self._records.get(delivery.observation.query_id)
        if record is None:
            self.drop(delivery)
            return
        newer, record.pending = record.pending, delivery
        if newer is not None:
            self.add_pending(record, newer)

    def settle_pending(self, query_id: str) -> None:
        """Settle a query's pending delivery: an event of any instance covers it."""
        record = self._records.get(query_id)
        if record is not None:
            self.settle(record.pending)
            record.pending = None

    def settle(self, delivery: Delivery | None) -> None:
        """Report a delivery as done to its intake: it needs no further event."""
        if delivery is not None:
            delivery.done()
            self._queue.task_done()

    def drop_queued(self) -> None:
        """Drop the deliveries on the queue: none is tracked yet."""
        while not self._queue.empty():
            self.drop(self._queue.get_nowait())

    def drop(self, delivery: Delivery | None) -> None:
        """Discard a delivery that is not done: the next owner of its query reads it again."""
        if delivery is not None:
            self._queue.task_done()

    # Failures

    def failed_to_track(self, message: Observation | LagEvent, error: Exception) -> None:
        """Track the query without a position, as far as the limits allow."""
        query_id = message.query_id
        if isinstance(error, OverLimit):
            what = f"position of query {query_id}: {error}"
            self._counters.refusals.add(self._offsets_topic, error.kind, what, query_id)
        if query_id not in self._records:
            with suppress(OverLimit):
                self.track(QueryState(**identity(message), sources=()))
        self.failed(message, "tracking", error)

    def failed(self, query: QueryMessage, stage: str, error: Exception) -> str:
        """Keep a failure until its stage has `recovered`, and return it in a sentence. Logs one
        trace of each kind."""
        query_id = query.query_id
        self.failures[stage] += 1
        why = printable(f"{type(error).__name__}: {error}", 200)
        failure = f"sparklag failed at its {stage} ({why}): see the service's log"
        record = self._records.get(query_id)
        if record is not None:
            record.failures[stage] = failure
        kind = (query_id, stage, type(error).__name__)
        if kind not in self._traced:
            self._traced[kind] = None
            if len(self._traced) > _TRACES:
                self._traced.popitem(last=False)
            # A SparklagError has a text for people; its trace adds nothing.
            trace = None if isinstance(error, SparklagError) else error
            _log.error(
                "%s of query %s failed: %s",
                *(stage, printable(query_id, 200), why),
                exc_info=trace,
                extra=log_fields(query, why),
            )
        return failure

    def recovered(self, query_id: str, stage: str) -> None:
        """Clear the failure of a stage that succeeded."""
        record = self._records.get(query_id)
        if record is not None:
            record.failures.pop(stage, None)


def _is_driver(delivery: Delivery) -> bool:
    return delivery.observation.run_id is not None
