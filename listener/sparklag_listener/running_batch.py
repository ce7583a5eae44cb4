"""The batch that foreachBatch is just called with: whose it is, where it begins and ends."""

from __future__ import annotations

from threading import Lock
from typing import Any, Final
from uuid import uuid4

from py4j.protocol import Py4JError

from sparklag_listener.classic.jvm_files import JvmFiles
from sparklag_listener.classic.spark_session import brief, describe_execution
from sparklag_listener.connect.session import is_connect_session
from sparklag_listener.errors import NotInBatch, UnsupportedSession, UnsupportedSpark
from sparklag_listener.events.source_positions import positions
from sparklag_offsets.checkpoints.offset_log import (
    OffsetFile,
    parse_initial_offsets,
    parse_offsets,
)
from sparklag_offsets.checkpoints.position import NO_SOURCES
from sparklag_offsets.errors import CheckpointGone
from sparklag_schemas import Observation, Offsets, SourcePosition
from sparklag_schemas.runtime.clock import epoch_ms

# As Spark names them; they are its own threads', so nobody else sees another batch's.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"

_runs: dict[str, _Run] = {}
"""By query id: what each batch of a run would ask for again."""
_adding = Lock()


def observe_batch(batch: Any, batch_id: int, cluster: str) -> Observation:
    """What will be observed of the batch once it is complete.

    Spark has written where it ends into the checkpoint before the batch runs. Sources other than
    Kafka's are left out. Raises NotInBatch, UnsupportedSession, UnsupportedSpark, CheckpointError.
    """
    spark = _session_of(batch)
    try:
        run = _run_of(spark, batch_id)
    except (Py4JError, OSError, AttributeError, TypeError) as error:
        raise UnsupportedSpark(
            f"keep_offsets(): Spark {spark.version} does not say which query this batch is of:"
            f" {brief(error)}"
        ) from error
    now_ms = epoch_ms()
    return Observation(
        observation_id=str(uuid4()),
        cause="progress",
        cluster=cluster,
        query_id=run.query_id,
        run_id=run.run_id,
        query=run.name,
        observed_at=now_ms,
        batch_id=batch_id,
        processed_at=now_ms,
        sources=run.positions(batch_id),
        checkpoint_location=run.description.checkpoint_location,
    )


class _Run:
    """A run of a query, seen from inside one of its batches."""

    def __init__(self, spark: Any, execution: Any) -> None:
        self.query_id = str(execution.id().toString())
        self.run_id = str(execution.runId().toString())
        self.name: str | None = execution.name()
        self.description = describe_execution(execution)
        self._execution = execution
        self._files = JvmFiles(spark, str(execution.resolvedCheckpointRoot()))
        self._last: tuple[int, OffsetFile] | None = None

    def is_active(self) -> bool:
        """Whether it goes on."""
        try:
            return bool(self._execution.isActive())
        except (Py4JError, OSError):
            # Of a JVM that is gone.
            return False

    def positions(self, batch_id: int) -> list[SourcePosition]:
        """Where each Kafka source begins in the batch that runs, and where it ends. Raises
        CheckpointError."""
        planned = self._offsets_file(batch_id)
        if planned is None:
            raise CheckpointGone(
                f"{self._files.shown}: offsets/{batch_id} is gone as its batch runs"
            )
        progress = NO_SOURCES
        if batch_id > 0:
            # A run's batches follow each other. Spark itself needs the file of the one before.
            last = self._last if self._last is not None and self._last[0] == batch_id - 1 else None
            before = last[1] if last is not None else self._offsets_file(batch_id - 1)
            progress = NO_SOURCES.after(before) if before is not None else NO_SOURCES
        self._last = batch_id, planned
        began: dict[int, Offsets | None] = {}
        ends: dict[int, Offsets | None] = {}
        for source in progress.offsets(planned):
            if source.planned is None or not self._is_kafka(source.planned):
                continue
            ends[source.source], began[source.source] = source.planned, source.processed
            if source.processed is None:
                began[source.source] = self._initial_offsets(planned, source.source)
        return positions(ends, began, self.description) if ends else []

    def _is_kafka(self, offsets: Offsets) -> bool:
        """Whether they are of one that is described; others' may have the same shape."""
        sources = self.description.sources
        return not sources or any(source.reads(set(offsets)) for source in sources)

    def _offsets_file(self, batch_id: int) -> OffsetFile | None:
        name = f"offsets/{batch_id}"
        content = self._files.read(name)
        if content is None:
            return None
        return parse_offsets(content, f"{self._files.shown}/{name}")

    def _initial_offsets(self, planned: OffsetFile, source: int) -> Offsets | None:
        name = f"sources/{planned.names[source] if planned.names else source}/0"
        content = self._files.read(name)
        if content is None:
            return None
        return parse_initial_offsets(content, f"{self._files.shown}/{name}")


def _session_of(batch: Any) -> Any:
    session = getattr(batch, "sparkSession", None)
    if session is None:
        raise UnsupportedSession(
            "keep_offsets() takes the DataFrame that foreachBatch is called with, got"
            f" {type(batch).__module__}.{type(batch).__name__}"
        )
    if is_connect_session(session) or getattr(session, "_jsparkSession", None) is None:
        raise UnsupportedSession(
            "keep_offsets() needs a classic Spark session, this is a Spark Connect session: its"
            " client cannot read the checkpoint"
        )
    return session


def _run_of(spark: Any, batch_id: int) -> _Run:
    """The run whose batch this is. Raises NotInBatch."""
    session = spark._jsparkSession
    context = session.sparkContext()
    query_id = context.getLocalProperty(_QUERY_ID)
    run = _runs.get(query_id)
    if run is None or not run.is_active():
        run = _found(spark, query_id)
    running = context.getLocalProperty(_BATCH_ID)
    if running != str(batch_id):
        raise NotInBatch(f"keep_offsets() is called with batch {batch_id} within batch {running}")
    return run


def _found(spark: Any, query_id: str | None) -> _Run:
    # The session of a batch is a clone, whose own list of queries is empty.
    active = spark._jsparkSession.sharedState().activeStreamingQueries()
    uuid = spark._jvm.java.util.UUID
    execution = active.get(uuid.fromString(query_id)) if query_id is not None else None
    if query_id is None or execution is None:
        raise NotInBatch(
            "keep_offsets() is called within foreachBatch's function, in the thread that Spark"
            " calls it in (with PYSPARK_PIN_THREAD as it is by default)"
        )
    run = _Run(spark, execution)
    with _adding:
        for ended in [each for each, other in _runs.items() if not other.is_active()]:
            del _runs[ended]
        _runs[query_id] = run
    return run
