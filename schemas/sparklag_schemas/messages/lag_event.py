"""The lag event: the whole lag of one query at one time.

The same document is the value on `consumer-lag`, the response of `GET /lag/{query}` and an item of
the live stream. An unknown number is null, never 0, and `reason` tells why.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

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
    IsolationLevel,
    OpenCause,
    OpenMeasuredBy,
    OpenStatus,
    OpenTimeLagMethod,
)
from sparklag_schemas.messages.query_message import QueryMessage


class PartitionLag(Struct, frozen=True, kw_only=True, gc=False):  # there are thousands
    """The lag of one partition of one source."""

    partition: Annotated[PartitionNumber, Meta(description="Partition number.")]
    processed_offset: Annotated[
        Offset | None, Meta(description="Next offset the query will read.")
    ] = None
    planned_offset: Annotated[
        Offset | None, Meta(description="Exclusive end of the batch now running, where known.")
    ] = None
    latest_offset: Annotated[
        Offset | None,
        Meta(description="Log end: high watermark, or last stable offset with `read_committed`."),
    ] = None
    earliest_offset: Annotated[Offset | None, Meta(description="Log start offset.")] = None
    lag: Annotated[
        Count | None,
        Meta(
            description="`latest_offset - processed_offset`, records. A partition that Spark has"
            " not planned yet counts from `earliest_offset`. Null: see `reason`."
        ),
    ] = None
    time_lag_s: Annotated[
        DurationS | None, AGES, Meta(description="Age of the first unprocessed record, seconds.")
    ] = None
    time_lag_method: Annotated[
        OpenTimeLagMethod | None, Meta(description="How `time_lag_s` was measured.")
    ] = None
    headroom_s: Annotated[
        DurationS | None,
        AGES,
        Meta(
            description="Seconds until retention deletes the first unprocessed record, at the rate"
            " at which `earliest_offset` advances. Null: it does not advance, or is not known."
        ),
    ] = None
    measured_at: Annotated[
        EpochMs | None,
        AGES,
        Meta(
            description="When `latest_offset` was read, epoch milliseconds, where that was not now:"
            " its leader does not answer. Null: at the event's `measured_at`."
        ),
    ] = None
    lost_records: Annotated[
        Count | None,
        Meta(description="Records deleted before the query read them; `lag` counts them too."),
    ] = None
    rewound_from: Annotated[
        Offset | None,
        Meta(description="The offset from which the query went back, until it is there again."),
    ] = None
    status: Annotated[OpenStatus, Meta(description="State of this partition.")] = "UNKNOWN"
    reason: Annotated[
        Text | None, Meta(description="Why, in a sentence, where there is more to say than OK.")
    ] = None


class TopicLag(Struct, frozen=True, kw_only=True):
    """The lag of one topic as one source of the query reads it.

    A query that reads a topic through two sources has two of these, told apart by `source`.
    """

    topic: Annotated[TopicName, Meta(description="Topic name.")]
    source: Annotated[Index, Meta(description="Index of the source in the query.")]
    partitions: Annotated[list[PartitionLag], Meta(description="In the order of their numbers.")]
    cluster: Annotated[
        Name | None, Meta(description="Alias of its Kafka cluster. Null: none that is configured.")
    ] = "default"
    topic_id: Annotated[
        Name | None,
        Meta(
            description="Kafka's id of the topic that the position is of: another one means that it"
            " was created anew. Null where the broker has no ids."
        ),
    ] = None
    assigned: Annotated[
        bool,
        Meta(description="Whether the source lists its partitions, and reads no later ones."),
    ] = False
    isolation_level: Annotated[IsolationLevel, Meta(description="What the source reads up to.")] = (
        "read_uncommitted"
    )
    total_lag: Annotated[
        Count | None,
        Meta(description="Sum of the known partitions' lag, records. Null: none known."),
    ] = None


class LagEvent(QueryMessage, frozen=True, kw_only=True):
    """The lag of one query at one time.

    (`observed_at`, `measured_at`) is the event's version: of two events of a query, the one with
    the higher version is the newer.
    """

    event_id: Annotated[Name, Meta(description="Unique, for deduplication. Also `ce_id`.")]
    cause: Annotated[OpenCause, Meta(description="Why this event was made.")]
    measured_by: Annotated[
        OpenMeasuredBy,
        Meta(description="An instance of the service, or the service embedded in the driver."),
    ]
    status: Annotated[OpenStatus, Meta(description="State of the query.")]
    measured_at: Annotated[
        EpochMs, Meta(description="When the latest offsets were read, epoch milliseconds.")
    ]
    topics: Annotated[list[TopicLag], Meta(description="By source, then topic.")]
    reason: Annotated[
        Text | None, Meta(description="Why, in a sentence, where there is more to say than OK.")
    ] = None
    total_lag: Annotated[
        Count | None,
        Meta(
            description="Sum of the known partitions' lag, records. Null: none known."
            " `unknown_partitions` says how many it leaves out."
        ),
    ] = None
    max_lag: Annotated[
        Count | None, Meta(description="Lag of the worst known partition, records.")
    ] = None
    in_flight: Annotated[
        Int64 | None,
        Meta(
            description="Records of the batch now running, `planned_offset - processed_offset`;"
            " `total_lag` counts them too. Null: not known."
        ),
    ] = None
    unknown_partitions: Annotated[Count, Meta(description="Partitions whose lag is not known.")] = 0
    lost_records: Annotated[
        Count, Meta(description="Records deleted before the query read them, all partitions.")
    ] = 0
    other_run_id: Annotated[
        Name | None,
        Meta(description="Another run of this query that reports too. Null: there is none."),
    ] = None
    superseded_by: Annotated[
        Name | None,
        Meta(
            description="Id of the query that has the name now: this query has no driver, and"
            " another query of its name and cluster is live or newer. Null: none."
        ),
    ] = None
    observation_offset: Annotated[
        Offset | None,
        Meta(
            description="Offset on `processed-offsets` of the observation it was measured from."
            " Null: the observation did not come from the topic."
        ),
    ] = None
    status_since: Annotated[
        EpochMs | None,
        Meta(description="Since when the query has this `status`, epoch milliseconds."),
    ] = None
    max_time_lag_s: Annotated[
        DurationS | None, Meta(description="Highest known `time_lag_s`, seconds.")
    ] = None
    processed_rate: Annotated[
        SignedRate | None, Meta(description="Offsets processed per second, of the last batches.")
    ] = None
    input_rate: Annotated[
        SignedRate | None, Meta(description="Offsets that arrive in the topics per second.")
    ] = None
    batch_rate: Annotated[
        SignedRate | None,
        Meta(description="Offsets processed per second while a batch runs: its capacity."),
    ] = None
    commit_rate: Annotated[
        Rate | None,
        Meta(
            description="Commits of a consumer group per second, of the last ones. All of them"
            " between two reads are one. Null: it is a Spark query."
        ),
    ] = None
    lag_trend: Annotated[
        SignedRate | None,
        Meta(description="Change of `total_lag` per second at these rates; below 0 it falls."),
    ] = None
    catch_up_s: Annotated[
        DurationS | None,
        Meta(description="Seconds until the lag is gone. Null: see `catch_up_reason`."),
    ] = None
    catch_up_reason: Annotated[Text | None, Meta(description="Why `catch_up_s` is null.")] = None
    min_headroom_records: Annotated[
        Int64 | None,
        Meta(
            description="Least distance of a lagging partition from its log start: the records that"
            " retention deletes before it deletes unread ones. Null: no lag, or not known."
        ),
    ] = None
    min_headroom_s: Annotated[
        DurationS | None, Meta(description="Least known `headroom_s` of a partition that lags.")
    ] = None
    loss_expected_at: Annotated[
        EpochMs | None,
        Meta(
            description="When unread records are deleted, epoch milliseconds, if query and"
            " retention go on at their rates. Null: not to be expected, or not known."
        ),
    ] = None
    skew: Annotated[
        Share | None,
        Meta(
            description="Share of `total_lag` that is in the worst partition, 0 to 1. Null: there"
            " is no lag, or one partition."
        ),
    ] = None
    usual_batch_s: Annotated[
        DurationS | None,
        Meta(description="95th percentile of the last batches' durations, seconds."),
    ] = None
    usual_interval_s: Annotated[
        DurationS | None,
        Meta(description="Median time between the ends of the last batches, seconds."),
    ] = None

    @property
    def version(self) -> tuple[int, int]:
        """Rises with every event of a query."""
        return (self.observed_at, self.measured_at)

    @property
    def display_name(self) -> str:
        """The query's name, or its id where it has none."""
        return self.query or self.query_id
