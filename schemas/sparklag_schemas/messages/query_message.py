"""The part of observations and lag events that describes the query."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field
from msgspec.structs import force_setattr

from sparklag_schemas.messages.bounds import (
    Count,
    DurationMs,
    DurationS,
    EpochMs,
    Index,
    Int64,
    Name,
    Text,
)
from sparklag_schemas.messages.enumerations import (
    SCHEMA_VERSION,
    OpenActivity,
    OpenDriverEnd,
    OpenOrigin,
)

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


_MAX_PHASES, _MAX_PHASE_NAME = 32, 64


class Batch(Struct, frozen=True, kw_only=True):
    """The completed micro-batch, as Spark reports it."""

    started_at: Annotated[EpochMs, Meta(description="When it was triggered, epoch milliseconds.")]
    rows: Annotated[Count, Meta(description="Rows read in this batch.")]
    duration_ms: Annotated[
        DurationMs | None,
        Meta(description="The whole trigger, milliseconds. Null: not reported by Spark."),
    ] = None
    phases_ms: Annotated[
        dict[Name, DurationMs],
        Meta(
            description="Spark's `durationMs`: phase of the batch, milliseconds. `other` is the"
            " longest of those beyond 32, and of those whose name is no word of 64 characters."
        ),
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

    def __post_init__(self) -> None:
        # Each phase is a series in Prometheus. The position counts, however odd these are.
        phases = self.phases_ms
        words = [name for name in phases if name.isidentifier() and len(name) <= _MAX_PHASE_NAME]
        if len(words) == len(phases) <= _MAX_PHASES:
            return
        words.sort(key=phases.__getitem__)
        kept = {name: phases[name] for name in words[1 - _MAX_PHASES :] if name != "other"}
        kept["other"] = max(ms for name, ms in phases.items() if name not in kept)
        force_setattr(self, "phases_ms", kept)


class ConsumerGroup(Struct, frozen=True, kw_only=True):
    """A consumer group, as its coordinator reports it, every `groups.find_interval_s`."""

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


class Straggler(Struct, frozen=True, kw_only=True):
    """The task that has run longest, where that is far longer than the others of its stage took."""

    stage_id: Annotated[Index, Meta(description="Spark's id of the stage.")]
    task_index: Annotated[
        Index,
        Meta(
            description="Index of the task in its stage; of a Kafka source, the index of its range."
        ),
    ]
    attempt: Annotated[Index, Meta(description="Attempt of the task, from 0.")]
    executor_id: Annotated[Name, Meta(description="Where it runs; `driver` in local mode.")]
    host: Annotated[Name, Meta(description="Host of that executor.")]
    running_s: Annotated[
        DurationS, Meta(description="Since it was launched, seconds, at `observed_at`.")
    ]
    mean_task_s: Annotated[
        DurationS, Meta(description="Mean run time of the completed tasks of its stage, seconds.")
    ]


class RunningBatch(Struct, frozen=True, kw_only=True):
    """The micro-batch that runs, by Spark's jobs, as its driver saw them at `observed_at`.

    Tasks are those of the jobs submitted so far; a batch may submit more. A job that begins and
    ends between two observations (10 s) is progress, and has no tasks here.
    """

    started_at: Annotated[
        EpochMs,
        Meta(
            description="When its first job was submitted, or it was first seen without one, epoch"
            " milliseconds."
        ),
    ]
    observed_at: Annotated[EpochMs, Meta(description="Time of these values, epoch milliseconds.")]
    progressed_at: Annotated[
        EpochMs,
        Meta(
            description="When a task was last seen to end, read or write, or a job to begin or end;"
            " epoch milliseconds."
        ),
    ]
    batch_id: Annotated[Count | None, Meta(description="Its number. Null: not planned yet.")] = None
    jobs: Annotated[Count, Meta(description="Jobs that run. 0: planning, or user code.")] = 0
    tasks_total: Annotated[
        Count, Meta(description="Tasks of its jobs seen so far, those of waiting stages too.")
    ] = 0
    tasks_done: Annotated[Count, Meta(description="Of these, how many are completed.")] = 0
    tasks_running: Annotated[Count, Meta(description="Of these, how many run.")] = 0
    tasks_failed: Annotated[
        Count, Meta(description="Failed attempts of tasks of the jobs that run.")
    ] = 0
    mean_task_s: Annotated[
        DurationS | None,
        Meta(
            description="Mean run time of completed tasks, seconds, of the running stage where it"
            " is longest. Null: none is completed."
        ),
    ] = None
    remaining_s: Annotated[
        DurationS | None,
        Meta(
            description="Seconds from `observed_at` until the known jobs are done, at the pace of"
            " their completed tasks. Null: no task of a running stage is completed, a stage waits"
            " for others, or there is a straggler."
        ),
    ] = None
    straggler: Annotated[
        Straggler | None,
        Meta(description="Null: no running task takes far longer than the completed ones took."),
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
    batch: Annotated[Batch | None, Meta(description="That batch, as Spark reports it.")] = None
    running_batch: Annotated[
        RunningBatch | None,
        Meta(
            description="The batch that runs, once it has for some seconds. Null: none does, or its"
            " driver cannot tell (Spark Connect, continuous processing, a checkpoint)."
        ),
    ] = None
    activity: Annotated[
        OpenActivity | None,
        Meta(description="Whether a batch runs, by its driver's last report. Null: not reported."),
    ] = None
    driver_end: Annotated[
        OpenDriverEnd | None,
        Meta(
            description="How its driver's reports ended: with Spark (`stopped`), with the process"
            " (`exited`), or with the handle while the query went on (`closed`). Null: they did"
            " not, or with the query alone."
        ),
    ] = None
    checkpoint_location: Annotated[
        Text | None, Meta(description="The query's resolved checkpoint root.")
    ] = None
    exception: Annotated[
        Text | None, Meta(description="Why the query failed. Null where it did not.")
    ] = None
    group: Annotated[
        ConsumerGroup | None,
        Meta(description="State and members of a consumer group. Null: a Spark query."),
    ] = None
