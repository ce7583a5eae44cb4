"""The lag event: the whole lag of one query at one time; and its partitions as flat records.

The event is the value on `consumer-lag`, the response of `GET /lag/{query}` and an item of the live
stream. A record of a partition, for tables and stream processors, is the value on
`consumer-lag-partitions`. An unknown number is null, never 0, and `reason` gives the cause.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

from msgspec import Struct
from msgspec.structs import asdict

from sparklag_schemas.messages.bounds import (
    AGES,
    Count,
    DurationS,
    EpochMs,
    Index,
    Int64,
    Name,
    Offset,
    PartitionNumber,
    Rate,
    Share,
    SignedRate,
    Text,
    TopicName,
)
from sparklag_schemas.messages.enumerations import (
    SCHEMA_VERSION,
    IsolationLevel,
    OpenCause,
    OpenMeasuredBy,
    OpenStatus,
    OpenTimeLagMethod,
)
from sparklag_schemas.messages.observation import QueryMessage, SchemaVersion


class OpenTransaction(Struct, frozen=True, kw_only=True, gc=False):
    """A transaction that is neither committed nor aborted yet, and the records that wait for it."""

    records: Count
    """Offsets from the last stable offset to the high watermark."""
    since: EpochMs
    """When the service first saw records wait at this last stable offset, epoch milliseconds."""


class PartitionLag(Struct, frozen=True, kw_only=True, gc=False):  # there are thousands
    """The lag of one partition of one source."""

    partition: PartitionNumber
    """Partition number."""
    processed_offset: Offset | None = None
    """Next offset the query will read."""
    planned_offset: Offset | None = None
    """Exclusive end of the batch now running, where known."""
    latest_offset: Offset | None = None
    """Log end: high watermark, or last stable offset with `read_committed`."""
    earliest_offset: Offset | None = None
    """Log start offset."""
    lag: Count | None = None
    """`latest_offset - processed_offset`, records. A partition that Spark has not planned yet
    counts from `earliest_offset`, and before the first batch from `startingOffsets` where they are
    known. Null: see `reason`."""
    readable_lag: Count | None = None
    """The records of `lag` that are left to read: without deleted ones, and without the markers of
    transactions that follow the position. Null: all of `lag`."""
    open_transaction: OpenTransaction | None = None
    """What a `read_committed` source waits for. Null: no transaction has been open for some
    seconds, or the source also reads uncommitted records."""
    time_lag_s: Annotated[DurationS | None, AGES] = None
    """Age of the first unprocessed record, seconds. Null: not known, or `readable_lag` is 0."""
    time_lag_method: OpenTimeLagMethod | None = None
    """How `time_lag_s` was measured."""
    headroom_s: Annotated[DurationS | None, AGES] = None
    """Seconds until retention deletes the first unprocessed record, at the rate at which
    `earliest_offset` advances. Null: it does not advance, or is not known."""
    measured_at: Annotated[EpochMs | None, AGES] = None
    """When `latest_offset` was read, epoch milliseconds, if that was earlier because the leader
    does not answer. Null: at the event's `measured_at`."""
    lost_records: Count | None = None
    """Records deleted before the query read them; `lag` counts them, `readable_lag` does not."""
    advanced_at: EpochMs | None = None
    """When `processed_offset` last changed, or was first observed, epoch milliseconds. Null: no
    position yet."""
    rising_since: EpochMs | None = None
    """Since when the lag has only risen from batch to batch, epoch milliseconds. Null: it fell, or
    did not rise in the last batch."""
    rewound_from: Offset | None = None
    """The offset from which the query went back. Null once the query has reached it again."""
    status: OpenStatus = "UNKNOWN"
    """State of this partition."""
    reason: Text | None = None
    """Why, in a sentence, where there is more to say than OK."""

    @property
    def unread(self) -> int | None:
        """The records that are left to read: `readable_lag`, or `lag` where that is null."""
        return self.lag if self.readable_lag is None else self.readable_lag


class TopicLag(Struct, frozen=True, kw_only=True):
    """The lag of one topic as one source of the query reads it.

    A query that reads a topic through two sources has two of these, distinguished by `source`.
    """

    topic: TopicName
    """Topic name."""
    source: Index
    """Index of the source in the query."""
    partitions: list[PartitionLag]
    """The partitions, in the order of their numbers."""
    cluster: Name | None = "default"
    """Alias of the topic's Kafka cluster. Null: not configured."""
    topic_id: Name | None = None
    """Kafka's id of the topic at this position: another id means that the topic was recreated.
    Null: the broker has no topic ids."""
    assigned: bool = False
    """True: the source lists its partitions, and does not read partitions added later."""
    isolation_level: IsolationLevel = "read_uncommitted"
    """The isolation level of the source: up to which offset it reads."""
    total_lag: Count | None = None
    """Sum of the records left to read in the known partitions. Null: none known."""


class Run(Struct, frozen=True, kw_only=True):
    """A run of a query."""

    started_at: EpochMs
    """When it was first observed, epoch milliseconds."""
    ended_at: EpochMs
    """When its end was observed, epoch milliseconds."""


class Runs(Struct, frozen=True, kw_only=True):
    """The runs of a query, as its drivers reported them, by their clocks."""

    first_at: EpochMs
    """When the query was first observed, epoch milliseconds."""
    started_at: EpochMs
    """When its last run was first observed, epoch milliseconds."""
    reported_at: EpochMs
    """When its driver last reported, epoch milliseconds."""
    ended: bool = False
    """True: the end of its last run was reported."""
    failed: Count = 0
    """Runs that ended with an exception."""
    finished: list[Run] = []
    """The last runs that ended by themselves without an exception, at most four, oldest first."""

    @property
    def recur(self) -> bool:
        """True: three runs were seen to end by themselves, the last run among them."""
        return len(self.finished) > 2 and self.finished[-1].ended_at == self.reported_at


class LagEvent(QueryMessage, frozen=True, kw_only=True):
    """The lag of one query at one time.

    (`observed_at`, `measured_at`) is the event's version: of two events of a query, the one with
    the higher version is the newer.
    """

    event_id: Name
    """Unique, for deduplication. Also `ce_id`."""
    cause: OpenCause
    """Why this event was made."""
    measured_by: OpenMeasuredBy
    """An instance of the service, or the service embedded in the driver."""
    status: OpenStatus
    """State of the query."""
    measured_at: EpochMs
    """When the latest offsets were read, epoch milliseconds."""
    topics: list[TopicLag]
    """The topics, by source, then name."""
    reason: Text | None = None
    """Why, in a sentence, where there is more to say than OK."""
    total_lag: Count | None = None
    """Sum of the records left to read in the known partitions. Null: none known.
    `unknown_partitions` counts the others."""
    max_lag: Count | None = None
    """Records left to read in the worst known partition."""
    in_flight: Int64 | None = None
    """Records of the batch now running, `planned_offset - processed_offset`; `total_lag` counts
    them too. Null: not known."""
    unread_estimate: Count | None = None
    """Records that a query in real-time mode has not read yet, at most: `total_lag` without what
    the tasks of the running batch reported as read. Null: another mode, or not known."""
    unknown_partitions: Count = 0
    """Partitions whose lag is not known."""
    lost_records: Count = 0
    """Records deleted before the query read them, all partitions."""
    other_run_id: Name | None = None
    """Another run of this query that reports too. Null: there is none."""
    superseded_by: Name | None = None
    """Id of the query that followed this one: it has the same name and cluster, reads one of the
    same topics, and began after this one had ended. Null: none."""
    runs: Runs | None = None
    """Its runs. Null: no driver reported the query."""
    observation_offset: Offset | None = None
    """Offset on `processed-offsets` of the observation it was measured from. Null: the observation
    did not come from the topic."""
    status_since: EpochMs | None = None
    """Since when the query has this `status`, epoch milliseconds."""
    max_time_lag_s: DurationS | None = None
    """Highest known `time_lag_s`, seconds; without the partitions in `group.unassigned`."""
    processed_rate: SignedRate | None = None
    """Offsets processed per second, over the last batches."""
    input_rate: SignedRate | None = None
    """Offsets that arrive in the topics per second."""
    batch_rate: SignedRate | None = None
    """Offsets processed per second while a batch runs: its capacity."""
    commit_rate: Rate | None = None
    """Commits per second of a consumer group, over its last commits; all commits between two reads
    count as one. Null: a Spark query."""
    lag_trend: SignedRate | None = None
    """Change of `total_lag` per second at these rates; negative: the lag falls."""
    catch_up_s: DurationS | None = None
    """Seconds until the lag is gone. Null: see `catch_up_reason`."""
    catch_up_reason: Text | None = None
    """Why `catch_up_s` is null."""
    min_headroom_records: Int64 | None = None
    """Least distance of a lagging partition from its log start: the records that retention deletes
    before it deletes unread ones. Null: no lag, or not known."""
    min_headroom_s: DurationS | None = None
    """Least known `headroom_s` of a partition that lags."""
    loss_expected_at: EpochMs | None = None
    """When retention will delete unread records, epoch milliseconds, at the current rates of query
    and retention. Null: not expected, or not known."""
    behind_since: EpochMs | None = None
    """Since when it has had records to read, was not idle and completed no batch, epoch
    milliseconds: STALL and STOP count from it. Null: nothing to read, or it never completed one."""
    rising_since: EpochMs | None = None
    """Since when `total_lag` has only risen from batch to batch, epoch milliseconds. Null: it fell,
    or did not rise in the last batch."""
    skew: Share | None = None
    """Share of `total_lag` that is in the worst partition, 0 to 1. Null: there is no lag, or one
    partition."""
    usual_batch_s: DurationS | None = None
    """95th percentile of the last batches' durations, seconds."""
    usual_interval_s: DurationS | None = None
    """Median time between the ends of the last batches, seconds."""

    @property
    def version(self) -> tuple[int, int]:
        """Rises with every event of a query."""
        return (self.observed_at, self.measured_at)

    def _repr_html_(self) -> str:
        """The lag in sentences, in a notebook."""
        # By name: that module imports this one.
        sentences = import_module("sparklag_schemas.presentation.sentences")
        return str(sentences.html(self))


class PartitionRecord(PartitionLag, frozen=True, kw_only=True, gc=False):
    """The lag of one partition, as one source of one query reads it, at one time.

    Its key is `query_id/source/topic/partition`. A newer record of a key replaces the older. A
    record without a value is a tombstone: the partition, or the query, is gone.
    """

    event_id: Name
    """Id of the lag event it is part of, for joining with `consumer-lag`."""
    query_id: Name
    """Spark's query id, or that of a consumer group."""
    source: Index
    """Index of the source in the query."""
    topic: TopicName
    """Topic name."""
    observed_at: EpochMs
    """When the query was last seen, epoch milliseconds."""
    measured_at: EpochMs
    """When `latest_offset` was read, epoch milliseconds."""
    query_status: OpenStatus
    """State of the query."""
    schema_version: SchemaVersion = SCHEMA_VERSION
    """Version of this document, `major.minor`."""
    query: Name | None = None
    """The query's name. Null where it has none."""
    run_id: Name | None = None
    """Spark's run id. Null: not known."""
    batch_id: Count | None = None
    """The last completed batch. Null before the first."""
    processed_at: EpochMs | None = None
    """When that batch completed, epoch milliseconds. Null before the first."""
    cluster: Name | None = "default"
    """Alias of the topic's Kafka cluster. Null: not configured."""


_OWN = set(PartitionRecord.__struct_fields__) - set(PartitionLag.__struct_fields__)
_OF_TOPIC = _OWN & set(TopicLag.__struct_fields__)
_OF_EVENT = _OWN & set(LagEvent.__struct_fields__) - _OF_TOPIC


def partition_record(event: LagEvent, topic: TopicLag, partition: PartitionLag) -> PartitionRecord:
    """The record of one partition of a lag event: fields with the same name are copied."""
    return PartitionRecord(
        **{
            **asdict(partition),
            **{name: getattr(topic, name) for name in _OF_TOPIC},
            **{name: getattr(event, name) for name in _OF_EVENT},
            "measured_at": partition.measured_at or event.measured_at,
            "query_status": event.status,
        }
    )


def partition_key(query_id: str, source: int, topic: str, partition: int) -> str:
    """The key of a partition's records."""
    return f"{query_id}/{source}/{topic}/{partition}"
