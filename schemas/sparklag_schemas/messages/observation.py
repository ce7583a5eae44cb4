"""The observation: the position of a query, one message on `processed-offsets`. A lag event repeats
the part of it that describes the query."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field
from msgspec.structs import force_setattr

from sparklag_schemas.messages.bounds import (
    Count,
    DurationMs,
    DurationS,
    EpochMs,
    HttpUrl,
    Index,
    Int64,
    Name,
    PartitionNumber,
    Text,
    TopicName,
)
from sparklag_schemas.messages.enumerations import (
    SCHEMA_VERSION,
    IsolationLevel,
    Offsets,
    OpenActivity,
    OpenCause,
    OpenDriverEnd,
    OpenMode,
    OpenOrigin,
    StartingOffsets,
)

SchemaVersion = Annotated[str, Meta(pattern=r"^[0-9]+\.[0-9]+$")]

_MAX_PHASES, _MAX_PHASE_NAME = 32, 64


class Batch(Struct, frozen=True, kw_only=True):
    """The completed micro-batch, as Spark reports it."""

    started_at: EpochMs
    """When it was triggered, epoch milliseconds."""
    rows: Count
    """Rows read in this batch."""
    duration_ms: DurationMs | None = None
    """The whole trigger, milliseconds. Null: not reported by Spark."""
    phases_ms: dict[Name, DurationMs] = field(default_factory=dict)
    """Spark's `durationMs`: phase of the batch, milliseconds. `other` is the longest of the phases
    beyond 32, and of those whose name is not a word of up to 64 characters."""
    rate_limited: bool | None = None
    """True: when the batch was planned, some partition had more records than the batch took. Null:
    not reported by Spark."""
    state_rows: Int64 | None = None
    """Rows in the state stores. Null: the query has none."""
    state_memory_bytes: Int64 | None = None
    """Memory the state stores take, bytes. Null: the query has none."""
    watermark_at: Int64 | None = None
    """The watermark, epoch milliseconds. Null: the query has none."""
    max_event_time_at: Int64 | None = None
    """Highest event time in this batch, epoch milliseconds. Null: no watermark, or no rows."""

    def __post_init__(self) -> None:
        # Each phase is a series in Prometheus. Invalid phases must not make the position invalid.
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

    state: Name | None = None
    """Kafka's name of the state: `Stable`, `PreparingRebalance`, `CompletingRebalance`,
    `Assigning`, `Reconciling`, `Empty`, `Dead`. Null: not reported by its coordinator."""
    members: Count | None = None
    """Number of members. Null: not known."""
    members_without_partitions: Count | None = None
    """Members that no partition is assigned to. Null: not known, as while it rebalances."""
    coordinator: Index | None = None
    """Node id of the broker that coordinates it."""
    protocol_type: Text | None = None
    """`consumer`, `connect`, `share`, `streams` or another. Null: not known, or it has had no
    member. A share group has no position."""
    unassigned: dict[TopicName, list[PartitionNumber]] | None = None
    """Topic, then partitions with a committed offset that no member of the stable group reads: the
    last two reads of its members agree. Null: not known yet."""

    @property
    def has_position(self) -> bool:
        """False: a share group, whose brokers hand out its records one by one."""
        return self.protocol_type != "share"


class Straggler(Struct, frozen=True, kw_only=True):
    """The longest-running task, if it has run far longer than the completed tasks of its stage."""

    stage_id: Index
    """Spark's id of the stage."""
    task_index: Index
    """Index of the task in its stage; of a Kafka source, the index of its range."""
    attempt: Index
    """Attempt of the task, from 0."""
    executor_id: Name
    """The executor that runs it; `driver` in local mode."""
    host: Name
    """Host of that executor."""
    running_s: DurationS
    """Time since its launch, seconds, at `observed_at`."""
    mean_task_s: DurationS
    """Mean run time of the completed tasks of its stage, seconds."""


class RunningBatch(Struct, frozen=True, kw_only=True):
    """The running micro-batch, from Spark's jobs as the driver observed them at `observed_at`.

    Tasks are those of the jobs submitted so far; a batch may submit more. A job that begins and
    ends between two observations (10 s) counts as progress; its tasks are not counted.
    """

    started_at: EpochMs
    """When its first job was submitted, or it was first observed without one, epoch ms."""
    observed_at: EpochMs
    """Time of these values, epoch milliseconds."""
    progressed_at: EpochMs
    """When a task was last observed to end, read or write, or a job to begin or end; epoch
    milliseconds."""
    batch_id: Count | None = None
    """Its number. Null: not planned yet."""
    jobs: Count = 0
    """Running jobs. 0: planning, or user code."""
    tasks_total: Count = 0
    """Tasks of its jobs observed so far, including those of waiting stages."""
    tasks_done: Count = 0
    """Completed tasks of `tasks_total`."""
    tasks_running: Count = 0
    """Running tasks of `tasks_total`."""
    tasks_failed: Count = 0
    """Failed task attempts of the running jobs."""
    rows_read: Count | None = None
    """Records that it has read, in real-time mode, as Spark's executors report every 10 s. Null:
    another mode, or not reported."""
    mean_task_s: DurationS | None = None
    """Mean run time of the completed tasks of a running stage, seconds: the longest mean of all
    running stages. Null: no task is completed."""
    remaining_s: DurationS | None = None
    """Seconds from `observed_at` until the known jobs are done, at the pace of their completed
    tasks. Null: no task of a running stage is completed, a stage waits for others, or there is a
    straggler."""
    straggler: Straggler | None = None
    """Null: no running task takes far longer than the completed tasks took."""


class QueryMessage(Struct, frozen=True, kw_only=True):
    """The query, its run, and the last batch it completed."""

    query_id: Name
    """Spark's query id. It survives restarts. Of a consumer group, `group:<cluster>:<group>`."""
    run_id: Name | None
    """Spark's run id. It changes with every start. Null: no driver reports the query, only its
    checkpoint, or it is a consumer group."""
    observed_at: EpochMs
    """When the query was last observed, epoch ms, by the clock of its driver, or of the service
    that read its checkpoint or group."""
    schema_version: SchemaVersion = SCHEMA_VERSION
    """Version of this document, `major.minor`."""
    origin: OpenOrigin = "listener"
    """What reported the position. `processed_at` is its time."""
    query: Name | None = None
    """The query's name, an alias. Null where it has none."""
    application: Name | None = None
    """Spark's id of the application that runs the query. Null: not reported."""
    spark_ui_url: HttpUrl | None = None
    """Address of the application's Spark UI. Null: not reported, or it has none."""
    ends_by_itself: bool | None = None
    """True: each run reads what there is and ends (triggers `availableNow` and `once`). Null: not
    reported."""
    cluster: Name = "default"
    """Alias of the Kafka cluster the query reads from."""
    batch_id: Count | None = None
    """The last completed batch. Null before the first."""
    processed_at: EpochMs | None = None
    """Last batch: when it completed, epoch milliseconds. Null before the first."""
    planned_batch_id: Count | None = None
    """The batch that is planned and not completed, by its checkpoint."""
    batch: Batch | None = None
    """That batch, as Spark reports it."""
    running_batch: RunningBatch | None = None
    """The running batch, once it has run for some seconds. Null: no batch runs, or it cannot be
    observed (Spark Connect, continuous processing, a checkpoint)."""
    mode: OpenMode | None = None
    """How Spark runs the query. Null: not reported."""
    trigger_interval_s: DurationS | None = None
    """Interval of the query's trigger, seconds. Null: it has none, or not reported."""
    activity: OpenActivity | None = None
    """The activity in the driver's last report: a batch runs, or not. Null: not reported."""
    driver_end: OpenDriverEnd | None = None
    """How its driver's reports ended: with Spark (`stopped`), with the process (`exited`), by
    Ctrl-C or SIGINT (`interrupted`), or with the handle while the query went on (`closed`). Null:
    they did not, or only the query ended."""
    checkpoint_location: Text | None = None
    """The query's resolved checkpoint root."""
    exception: Text | None = None
    """Why the query failed. Null where it did not."""
    group: ConsumerGroup | None = None
    """State and members of a consumer group. Null: a Spark query."""

    @property
    def display_name(self) -> str:
        """The query's name, or its id where it has none."""
        return self.query or self.query_id


class SourcePosition(Struct, frozen=True, kw_only=True):
    """How far a query has read one of its Kafka sources."""

    source: Index
    """Index of the source in the query, as Spark numbers them."""
    processed: Offsets | None = None
    """Topic, partition, next offset to read (exclusive end of the last completed batch). Null: not
    known yet."""
    began: Offsets | None = None
    """The start of that batch (inclusive), in the same shape; cause `progress` only. Null: the
    query's first batch, or not known."""
    planned: Offsets | None = None
    """Exclusive end of the batch now running, in the same shape, where known."""
    starting: StartingOffsets | None = None
    """Where the query's first batch starts; a partition that is not named starts at its earliest
    offset. Null: by timestamp, at the latest offset, not known, or a batch has completed."""
    topics: list[TopicName] | None = None
    """Topics the source names (`subscribe` or `assign`). Null with a pattern."""
    assigned: dict[TopicName, list[PartitionNumber]] | None = None
    """Topic, then partitions, where the source names them (`assign`). Null: it reads all, those
    added later too."""
    topic_pattern: Text | None = None
    """The pattern of `subscribePattern`, as Java's regular expressions."""
    bootstrap_servers: Text | None = None
    """`kafka.bootstrap.servers` of the source, as in the query's options."""
    isolation_level: IsolationLevel = "read_uncommitted"
    """`read_committed` sources are measured to the last stable offset."""


class Observation(QueryMessage, frozen=True, kw_only=True):
    """The position of one query at one time. It is complete: it needs no earlier message.

    `sources` holds the Kafka sources only. An observation with cause `idle`, `refresh` or
    `terminated` repeats the last known position, so the newest one of a query is enough.
    `batch` comes with cause `progress` only.
    """

    observation_id: Name
    """Unique, for deduplication. Also `ce_id`."""
    cause: OpenCause
    """Why this observation was made."""
    sources: list[SourcePosition]
    """The query's Kafka sources."""
