"""The observation: what a query's position was. One message on `processed-offsets`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from sparklag_schemas.vocabulary import SCHEMA_VERSION, IsolationLevel, ObservationCause, Offsets


class SourcePosition(Struct, frozen=True, kw_only=True):
    """How far a query has read one of its Kafka sources."""

    source: Annotated[
        int,
        Meta(ge=0, description="Index of the source in the query, as Spark numbers them."),
    ]
    processed: Annotated[
        Offsets | None,
        Meta(
            description="Topic, partition, next offset to read (exclusive end of the last completed"
            " batch). Null: not known yet."
        ),
    ] = None
    planned: Annotated[
        Offsets | None,
        Meta(description="Exclusive end of the batch now running, in the same shape, where known."),
    ] = None
    topics: Annotated[
        list[str] | None,
        Meta(description="Topics the source names (`subscribe` or `assign`). Null with a pattern."),
    ] = None
    topic_pattern: Annotated[
        str | None,
        Meta(description="The pattern of `subscribePattern`, as Java's regular expressions."),
    ] = None
    bootstrap_servers: Annotated[
        str | None,
        Meta(description="`kafka.bootstrap.servers` of the source, as the query was given it."),
    ] = None
    isolation_level: Annotated[
        IsolationLevel,
        Meta(description="`read_committed` sources are measured to the last stable offset."),
    ] = "read_uncommitted"


class Batch(Struct, frozen=True, kw_only=True):
    """The completed micro-batch, by Spark's own account."""

    started_at: Annotated[int, Meta(description="When it was triggered, epoch milliseconds.")]
    rows: Annotated[int, Meta(ge=0, description="Rows read in this batch.")]
    duration_ms: Annotated[
        int | None,
        Meta(description="The whole trigger, milliseconds. Null where Spark did not say."),
    ] = None
    phases_ms: Annotated[
        dict[str, int],
        Meta(description="Spark's `durationMs`: phase of the batch, milliseconds."),
    ] = field(default_factory=dict)


class Observation(Struct, frozen=True, kw_only=True):
    """What was seen of one query at one moment. It is whole: it needs no earlier message.

    `sources` holds the Kafka sources only. An observation with cause `idle` or `terminated`
    repeats the last known position, so the newest observation of a query always says all.
    """

    observation_id: Annotated[str, Meta(description="Unique, for deduplication.")]
    query_id: Annotated[str, Meta(description="Spark's query id. It survives restarts.")]
    run_id: Annotated[str, Meta(description="Spark's run id. It changes with every start.")]
    cause: Annotated[ObservationCause, Meta(description="What was seen.")]
    observed_at: Annotated[
        int, Meta(description="When the observer saw it, epoch milliseconds, the driver's clock.")
    ]
    sources: Annotated[list[SourcePosition], Meta(description="The query's Kafka sources.")]
    schema_version: Annotated[
        str,
        Meta(description="Version of this document, `major.minor`.", pattern=r"^[0-9]+\.[0-9]+$"),
    ] = SCHEMA_VERSION
    query: Annotated[
        str | None, Meta(description="The query's name, an alias. Null where it has none.")
    ] = None
    cluster: Annotated[
        str, Meta(description="Alias of the Kafka cluster the query reads from.")
    ] = "default"
    batch_id: Annotated[
        int | None, Meta(description="The last completed batch. Null before the first.")
    ] = None
    processed_at: Annotated[
        int | None,
        Meta(description="When that batch completed, epoch milliseconds. Null before the first."),
    ] = None
    batch: Annotated[Batch | None, Meta(description="That batch. Only with cause `progress`.")] = (
        None
    )
    checkpoint_location: Annotated[
        str | None, Meta(description="The query's resolved checkpoint root.")
    ] = None
    exception: Annotated[
        str | None,
        Meta(description="With cause `terminated`: why the query failed. Null: it was stopped."),
    ] = None
