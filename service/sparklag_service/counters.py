"""The service's counters and refused messages. Every part writes them; `/metrics` and
`/health/ready` read them."""

from __future__ import annotations

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from sparklag_schemas.runtime.logs import log_fields
from sparklag_schemas.text.printable import printable

_log = logging.getLogger(__name__)
KINDS: Final = (
    "batch",
    "bounds",
    "future",
    "limit",
    "malformed",
    "place",
    "signature",
    "team",
    "version",
)
"""`ContractError.kind` of refused messages. A `batch` is refused as a whole."""
_LOG_INTERVAL_S: Final = 60.0
_QUERIES: Final = 10_000
"""Queries whose last refusal is kept: anybody may write new query ids."""
_RECENT_S: Final = 300.0


def count(meaning: str) -> Any:
    return field(default=0, metadata={"meaning": meaning})


@dataclass
class Counts:
    def as_dict(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def meanings(cls) -> dict[str, str]:
        return {counter.name: counter.metadata["meaning"] for counter in fields(cls)}


class Refusals:
    """Messages that this instance refused, counted by topic and kind. Each kind of a topic is
    logged at most once a minute."""

    def __init__(self) -> None:
        self.known_name: Callable[[str], str | None] = lambda query_id: None
        """See Refusals in `contract_records`."""
        self.counts: Counter[tuple[str, str]] = Counter()
        self._logged: dict[tuple[str, str], tuple[float, int]] = {}
        self._of_query: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._newest: tuple[float, str] | None = None

    def add(self, topic: str, kind: str, what: str, query_id: str | None) -> None:
        """Count a refused message. `what`: which message, and why."""
        now_s = time.monotonic()
        what = printable(what)
        self.counts[topic, kind] += 1
        self._newest = (now_s, what)
        if query_id is not None:
            self._of_query[query_id] = (now_s, what)
            self._of_query.move_to_end(query_id)
            if len(self._of_query) > _QUERIES:
                self._of_query.popitem(last=False)
        logged_s, logged = self._logged.get((topic, kind), (-_LOG_INTERVAL_S, 0))
        if now_s >= logged_s + _LOG_INTERVAL_S:
            count = self.counts[topic, kind]
            before = count - logged - 1
            more = f" ({before} more of this kind before it)" if before else ""
            fields = None if query_id is None else log_fields(query_id, what)
            _log.warning("refused a %s%s", what, more, extra=fields)
            self._logged[topic, kind] = (now_s, count)

    def of_query(self, query_id: str, since_s: float) -> str | None:
        """Why the newest refused message of a query was refused. None: no refusal after `since_s`
        (`time.monotonic()`)."""
        at_s, what = self._of_query.get(query_id, (since_s, ""))
        return what if at_s > since_s else None

    @property
    def recent(self) -> str | None:
        """The newest refusal of the last minutes, with the count since the start, or None."""
        if self._newest is None or self._newest[0] < time.monotonic() - _RECENT_S:
            return None
        count = sum(self.counts.values())
        return f"{count:,} messages refused since the start, the last one a {self._newest[1]}"


@dataclass
class Counters(Counts):
    """Counts since the start of this instance."""

    def __post_init__(self) -> None:
        self.refusals = Refusals()

    observations: int = count("Observations received.")
    superseded: int = count(
        "Observations replaced by a newer one of the same query before lag was measured."
    )
    stale: int = count(
        "Observations that were read again, or older than the last one of their query."
    )
    measured: int = count("Measurements of a query's lag.")
    published: int = count("Lag events and tombstones Kafka acknowledged.")
    too_large: int = count(
        "Lag events dropped: the topic refuses their size. The first of each query is logged."
    )
    publish_failures: int = count(
        "Lag events that were not acknowledged; their query is measured and published again."
    )
    tombstones: int = count("Queries forgotten.")
    partition_records: int = count("Partition records and their tombstones Kafka acknowledged.")
    partition_failures: int = count(
        "Partition records that were not acknowledged; they are written again with the next event."
    )
    rebalances: int = count("Rebalances of the consumer group.")
    adopted: int = count("Queries taken over from the view.")
    evicted: int = count(
        "Finished queries that were forgotten before `keep_s` to stay within `limits`."
    )
    released: int = count("Queries handed over to another instance, or forgotten.")
    outdated_events: int = count(
        "Lag events that came after a newer one of their query; the view keeps the newer."
    )
    reads_failed: int = count("Failed reads of sparklag's topics; each read is retried.")
    commits_failed: int = count("Failed offset commits; the next commit includes their offsets.")

    batches_recorded: int = count("Batches written to the offset store.")
    batches_pruned: int = count("Batches deleted from the offset store after `store.keep_s`.")
    batches_refused: int = count(
        "Observations that the offset store refused; each is logged and dropped."
    )
    store_failures: int = count("Failures of the offset store; each write is retried.")

    mirror_commits: int = count(
        "Commits of the mirror that Kafka accepted, each to one query's group."
    )
    mirror_refused: int = count(
        "Times the mirror did not commit: others use the group, or the group has members."
    )
    mirror_superseded: int = count(
        "Positions that were not mirrored: their group has a newer one, or is a successor's."
    )
    mirror_failures: int = count(
        "Failures of the mirror to read a group or to commit to it; each is retried."
    )

    connections_refused: int = count(
        "HTTP connections refused: beyond `limits.connections`, or beyond the share of one address."
    )
    connections_cut_off: int = count(
        "HTTP connections cut off: their client did not receive a response in `limits.response_s`,"
        " was the slowest while `limits.unsent_mb` were not received, or sent too many lines."
    )
    stream_accepted: int = count("Readers of the live stream that were accepted.")
    stream_refused: int = count("Readers of the live stream beyond `live.max_readers`.")
    stream_cut_off: int = count(
        "Readers of the live stream that were disconnected: their next event was no longer kept."
    )
    stream_gaps: int = count("Readers that resumed after events which were no longer kept.")
    history_left_out: int = count("Events left out of the history because its memory is full.")
    otlp_failures: int = count("Pushes to the OpenTelemetry collector that failed.")
    traces_dropped: int = count(
        "Traces of batches that were not pushed: the collector did not respond for too long."
    )
    followers_failed: int = count(
        "Failures of the history or live stream with an event of the view; the first is logged."
    )
