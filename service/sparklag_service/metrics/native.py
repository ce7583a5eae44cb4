"""sparklag's own families. What is null has no sample; ages are of the moment of the scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter

from sparklag_schemas import Batch, LagEvent, PartitionLag, TopicLag
from sparklag_service.metrics.family import Family, Gauge, Labelled, Number
from sparklag_service.metrics.label_text import label_set, pairs
from sparklag_service.metrics.scheme import Named, Scheme


@dataclass(frozen=True)
class Age(Family):
    """How long ago something was. Another machine's clock may say that it is still to come: then
    that is 0."""

    read: Callable[[LagEvent], int | None] = lambda _: None
    """When it was, epoch milliseconds."""

    def seconds(self, event: LagEvent, now_ms: int) -> float | None:
        """The age. None: it never was."""
        at_ms = self.read(event)
        return None if at_ms is None else max(0, now_ms - at_ms) / 1000

    def block(self, queries: Iterable[tuple[str, LagEvent]], now_ms: int) -> bytes:
        """The lines of queries, each with its labels."""
        name = f"\n{self.name}"
        return "".join(
            [
                f"{name}{labels} {seconds:.3f}"
                for labels, event in queries
                if (seconds := self.seconds(event, now_ms)) is not None
            ]
        ).encode()


AGES = (
    Age(
        "sparklag_query_processed_age_seconds",
        "Time since the last batch completed, in seconds.",
        "seconds",
        read=attrgetter("processed_at"),
    ),
    Age(
        "sparklag_query_observed_age_seconds",
        "Time since the query was last heard of, in seconds.",
        "seconds",
        read=attrgetter("observed_at"),
    ),
    Age(
        "sparklag_query_measured_age_seconds",
        "Time since the latest offsets were read: how old these figures are, in seconds.",
        "seconds",
        read=attrgetter("measured_at"),
    ),
)


def _of_batch(read: Callable[[Batch], Number | None]) -> Callable[[LagEvent], Number | None]:
    return lambda event: None if event.batch is None else read(event.batch)


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _running(event: LagEvent) -> bool | None:
    return {"running": True, "waiting": False}.get(event.activity or "")


def _phases(event: LagEvent) -> Iterable[tuple[dict[str, str], Number]]:
    phases_ms = event.batch.phases_ms if event.batch is not None else {}
    return [({"phase": phase}, ms / 1000) for phase, ms in phases_ms.items()]


def _status(event: LagEvent) -> Iterable[tuple[dict[str, str], Number]]:
    # Only the one it has: of hundreds of queries, eleven zeros each would say nothing, and a
    # status that ends is stale from the next scrape on.
    return [({"status": event.status}, 1)]


def _info(event: LagEvent) -> Iterable[tuple[dict[str, str], Number]]:
    told = {
        "run_id": event.run_id or "",
        "origin": event.origin,
        "measured_by": event.measured_by,
        "checkpoint_location": event.checkpoint_location or "",
    }
    return [(told, 1)]


def _partitions(event: LagEvent) -> int:
    return sum(len(topic.partitions) for topic in event.topics)


_QUERY: tuple[Gauge[LagEvent] | Labelled[LagEvent], ...] = (
    Labelled(
        "sparklag_query_info",
        "The query's run, who knew its position, who measured it, and where its checkpoint is.",
        kind="info",
        read=_info,
    ),
    Labelled(
        "sparklag_query_status", "1 for the status that the query has: see its label.", read=_status
    ),
    Gauge(
        "sparklag_query_status_since_timestamp_seconds",
        "Since when it has that status, seconds since the epoch.",
        "seconds",
        read=lambda event: _seconds(event.status_since),
    ),
    Gauge(
        "sparklag_query_lag",
        "Sum of the known partitions' lag, in records.",
        read=attrgetter("total_lag"),
    ),
    Gauge(
        "sparklag_query_max_lag",
        "Lag of the worst known partition, in records.",
        read=attrgetter("max_lag"),
    ),
    Gauge(
        "sparklag_query_lag_seconds",
        "Age of the oldest unprocessed record when it was measured, in seconds.",
        "seconds",
        read=attrgetter("max_time_lag_s"),
    ),
    Gauge("sparklag_query_partitions", "Partitions that the query reads.", read=_partitions),
    Gauge(
        "sparklag_query_unknown_partitions",
        "Partitions whose lag is not known, and in no sum.",
        read=attrgetter("unknown_partitions"),
    ),
    Gauge(
        "sparklag_query_lost_records",
        "Records that were deleted before the query read them.",
        read=attrgetter("lost_records"),
    ),
    Gauge(
        "sparklag_query_in_flight",
        "Records of the batch now running; they count as lag too.",
        read=attrgetter("in_flight"),
    ),
    Gauge(
        "sparklag_query_input_rate",
        "Offsets that arrive in the query's topics, per second.",
        read=attrgetter("input_rate"),
    ),
    Gauge(
        "sparklag_query_processed_rate",
        "Offsets processed, per second.",
        read=attrgetter("processed_rate"),
    ),
    Gauge(
        "sparklag_query_batch_rate",
        "Offsets processed per second while a batch runs: what the query could do.",
        read=attrgetter("batch_rate"),
    ),
    Gauge(
        "sparklag_query_lag_trend",
        "What the lag gains per second, in records; below 0 it falls.",
        read=attrgetter("lag_trend"),
    ),
    Gauge(
        "sparklag_query_catch_up_seconds",
        "Time until the lag is gone at these rates, in seconds; no sample where it never is.",
        "seconds",
        read=attrgetter("catch_up_s"),
    ),
    Gauge(
        "sparklag_query_headroom_records",
        "Least distance of a partition that lags from its log's start, in records.",
        read=attrgetter("min_headroom_records"),
    ),
    Gauge(
        "sparklag_query_headroom_seconds",
        "Least time until retention deletes unread records, in seconds.",
        "seconds",
        read=attrgetter("min_headroom_s"),
    ),
    Gauge(
        "sparklag_query_loss_expected_timestamp_seconds",
        "When unread records are deleted if all goes on as it does, seconds since the epoch.",
        "seconds",
        read=lambda event: _seconds(event.loss_expected_at),
    ),
    Gauge(
        "sparklag_query_skew_ratio",
        "Share of the lag that is in the worst partition, 0 to 1.",
        "ratio",
        read=attrgetter("skew"),
    ),
    Gauge(
        "sparklag_query_running",
        "Whether a batch runs, when the driver said last.",
        read=_running,
    ),
    Gauge(
        "sparklag_query_batch_id", "The last completed batch.", read=lambda event: event.batch_id
    ),
    Gauge(
        "sparklag_query_batch_rows",
        "Rows that the last completed batch read.",
        read=_of_batch(lambda batch: batch.rows),
    ),
    Gauge(
        "sparklag_query_batch_seconds",
        "Duration of the last completed batch, the whole trigger, in seconds.",
        "seconds",
        read=_of_batch(lambda batch: _seconds(batch.duration_ms)),
    ),
    Labelled(
        "sparklag_query_batch_phase_seconds",
        "Duration of a phase of the last completed batch, in seconds.",
        "seconds",
        read=_phases,
    ),
    Gauge(
        "sparklag_query_usual_batch_seconds",
        "95th percentile of the last batches' durations, in seconds.",
        "seconds",
        read=attrgetter("usual_batch_s"),
    ),
    Gauge(
        "sparklag_query_usual_interval_seconds",
        "Median time between the ends of the last batches, in seconds.",
        "seconds",
        read=attrgetter("usual_interval_s"),
    ),
    Gauge(
        "sparklag_query_rate_limited",
        "Whether there was more to read when the last completed batch was planned.",
        read=_of_batch(lambda batch: batch.rate_limited),
    ),
    Gauge(
        "sparklag_query_state_rows",
        "Rows in the query's state stores.",
        read=_of_batch(lambda batch: batch.state_rows),
    ),
    Gauge(
        "sparklag_query_state_memory_bytes",
        "Memory that the state stores take, in bytes.",
        "bytes",
        read=_of_batch(lambda batch: batch.state_memory_bytes),
    ),
    Gauge(
        "sparklag_query_watermark_timestamp_seconds",
        "The query's watermark, seconds since the epoch.",
        "seconds",
        read=_of_batch(lambda batch: _seconds(batch.watermark_at)),
    ),
)


def _worst_s(topic: TopicLag) -> float | None:
    known = [p.time_lag_s for p in topic.partitions if p.time_lag_s is not None]
    return max(known, default=None)


_TOPIC: tuple[Gauge[TopicLag], ...] = (
    Gauge(
        "sparklag_topic_lag",
        "Sum of the topic's known partitions' lag, in records.",
        read=attrgetter("total_lag"),
    ),
    Gauge(
        "sparklag_topic_lag_seconds",
        "Age of the topic's oldest unprocessed record when it was measured, in seconds.",
        "seconds",
        read=_worst_s,
    ),
)
_PARTITION: tuple[Gauge[PartitionLag], ...] = (
    Gauge(
        "sparklag_partition_processed_offset",
        "Next offset that the query will read.",
        read=attrgetter("processed_offset"),
    ),
    Gauge(
        "sparklag_partition_latest_offset",
        "End of the log, or its last stable offset where the query reads what is committed.",
        read=attrgetter("latest_offset"),
    ),
    Gauge(
        "sparklag_partition_earliest_offset",
        "Start of the log.",
        read=attrgetter("earliest_offset"),
    ),
    Gauge(
        "sparklag_partition_lag",
        "Records between the two: latest minus processed offset.",
        read=attrgetter("lag"),
    ),
    Gauge(
        "sparklag_partition_lag_seconds",
        "Age of the first unprocessed record when it was measured, in seconds.",
        "seconds",
        read=attrgetter("time_lag_s"),
    ),
    Gauge(
        "sparklag_partition_headroom_seconds",
        "Time until retention deletes the first unprocessed record, in seconds.",
        "seconds",
        read=attrgetter("headroom_s"),
    ),
)


def query_labels(event: LagEvent) -> dict[str, str]:
    """A query's labels."""
    return {"cluster": event.cluster, "query": event.display_name, "query_id": event.query_id}


def topic_labels(event: LagEvent) -> Iterable[tuple[dict[str, str], TopicLag]]:
    """What a query reads, with its labels: the source only where it reads a topic through two."""
    for topic, source in _with_sources(event):
        labels = {**query_labels(event), "cluster": topic.cluster or "", "topic": topic.topic}
        yield labels if source is None else {**labels, "source": str(source)}, topic


def _with_sources(event: LagEvent) -> Iterable[tuple[TopicLag, int | None]]:
    names = [(topic.cluster, topic.topic) for topic in event.topics]
    if len(names) == len(set(names)):
        return [(topic, None) for topic in event.topics]
    readers = Counter(names)
    return [
        (topic, topic.source if readers[name] > 1 else None)
        for name, topic in zip(names, event.topics, strict=True)
    ]


# Asked for with each event of a query, and nearly always what they were.
@lru_cache(maxsize=16_384)
def _query_set(cluster: str, query: str, query_id: str) -> str:
    return label_set(cluster=cluster, query=query, query_id=query_id)


@lru_cache(maxsize=16_384)
def _topic_pairs(cluster: str, query: str, query_id: str, topic: str, source: int | None) -> str:
    labels = {"cluster": cluster, "query": query, "query_id": query_id, "topic": topic}
    return pairs(**labels) if source is None else pairs(**labels, source=str(source))


def query_set(event: LagEvent) -> str:
    """A query's labels as text, with braces."""
    return _query_set(event.cluster, event.display_name, event.query_id)


def _topics(named: Named) -> Iterable[tuple[str, TopicLag]]:
    event = named.event
    query, query_id = event.display_name, event.query_id
    for topic, source in _with_sources(event):
        yield _topic_pairs(topic.cluster or "", query, query_id, topic.topic, source), topic


NATIVE = Scheme(_QUERY, _TOPIC, _PARTITION, lambda named: query_set(named.event), _topics)
