"""The part of observations and lag events that describes the query."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from sparklag_schemas.bounds import Count, DurationMs, EpochMs, Index, Int64, Name, Text
from sparklag_schemas.enumerations import SCHEMA_VERSION, OpenActivity, OpenOrigin

SchemaVersion = Annotated[
    str, Meta(description="Version of this document, `major.minor`.", pattern=r"^[0-9]+\.[0-9]+$")
]
BatchId = Annotated[
    Count | None, Meta(description="The last completed batch. Null before the first.")
]
ProcessedAt = Annotated[
    EpochMs | None,
    Meta(description="When that batch completed, epoch milliseconds. Null before the first."),
]


class Batch(Struct, frozen=True, kw_only=True):
    """The completed micro-batch, by Spark's own account."""

    started_at: Annotated[EpochMs, Meta(description="When it was triggered, epoch milliseconds.")]
    rows: Annotated[Count, Meta(description="Rows read in this batch.")]
    duration_ms: Annotated[
        DurationMs | None,
        Meta(description="The whole trigger, milliseconds. Null: not reported by Spark."),
    ] = None
    phases_ms: Annotated[
        dict[Name, DurationMs],
        Meta(description="Spark's `durationMs`: phase of the batch, milliseconds."),
    ] = field(default_factory=dict)
    rate_limited: Annotated[
        bool | None,
        Meta(
            description="Whether there was more to read when it was planned, in some partition."
            " Null: not reported by Spark."
        ),
    ] = None
    state_rows: Annotated[
        Int64 | None, Meta(description="Rows in the state stores. Null: the query has none.")
    ] = None
    state_memory_bytes: Annotated[
        Int64 | None, Meta(description="Memory the state stores take, bytes. Null: it has none.")
    ] = None
    watermark_at: Annotated[
        Int64 | None, Meta(description="The watermark, epoch milliseconds. Null: it has none.")
    ] = None
    max_event_time_at: Annotated[
        Int64 | None,
        Meta(
            description="Highest event time in this batch, epoch milliseconds. Null: no watermark,"
            " or no rows."
        ),
    ] = None


class ConsumerGroup(Struct, frozen=True, kw_only=True):
    """A consumer group, by its coordinator's account; as old as `groups.find_interval_s`."""

    state: Annotated[
        Name | None,
        Meta(
            description="Kafka's word: `Stable`, `PreparingRebalance`, `CompletingRebalance`,"
            " `Assigning`, `Reconciling`, `Empty`, `Dead`. Null: its coordinator does not say."
        ),
    ] = None
    members: Annotated[Count | None, Meta(description="Its members. Null: not known.")] = None
    members_without_partitions: Annotated[
        Count | None,
        Meta(
            description="Members that no partition is assigned to. Null: not known, as while it"
            " rebalances."
        ),
    ] = None
    coordinator: Annotated[
        Index | None, Meta(description="Node id of the broker that coordinates it.")
    ] = None


class QueryMessage(Struct, frozen=True, kw_only=True):
    """The query, its run, and the last batch it completed."""

    query_id: Annotated[
        Name,
        Meta(
            description="Spark's query id. It survives restarts. Of a consumer group,"
            " `group:<cluster>:<group>`."
        ),
    ]
    run_id: Annotated[
        Name | None,
        Meta(
            description="Spark's run id. It changes with every start. Null: no driver reports the"
            " query, only its checkpoint, or it is a consumer group."
        ),
    ]
    observed_at: Annotated[
        EpochMs,
        Meta(
            description="When the query was last seen, epoch ms, by the clock of its driver, or of"
            " the service that read its checkpoint or group."
        ),
    ]
    schema_version: SchemaVersion = SCHEMA_VERSION
    origin: Annotated[
        OpenOrigin, Meta(description="What reported the position. `processed_at` is its time.")
    ] = "listener"
    query: Annotated[
        Name | None, Meta(description="The query's name, an alias. Null where it has none.")
    ] = None
    cluster: Annotated[
        Name, Meta(description="Alias of the Kafka cluster the query reads from.")
    ] = "default"
    batch_id: BatchId = None
    processed_at: ProcessedAt = None
    planned_batch_id: Annotated[
        Count | None,
        Meta(description="The batch that is planned and not completed, by its checkpoint."),
    ] = None
    batch: Annotated[Batch | None, Meta(description="That batch, by Spark's own account.")] = None
    activity: Annotated[
        OpenActivity | None,
        Meta(description="Whether a batch runs, by its driver's last report. Null: not reported."),
    ] = None
    checkpoint_location: Annotated[
        Text | None, Meta(description="The query's resolved checkpoint root.")
    ] = None
    exception: Annotated[
        Text | None, Meta(description="Why the query failed. Null where it did not.")
    ] = None
    group: Annotated[
        ConsumerGroup | None,
        Meta(description="Of a consumer group, its members. Null: it is a Spark query."),
    ] = None
