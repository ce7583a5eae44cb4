"""The batch that foreachBatch runs, and its offsets in the checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, Final, TypeVar
from uuid import uuid4

from py4j.protocol import Py4JError, Py4JJavaError

from sparklag_listener.classic.listener import UNAVAILABLE, brief, read_text
from sparklag_listener.classic.query_description import describe_execution
from sparklag_listener.errors import NotInBatch, UnsupportedSession, UnsupportedSpark
from sparklag_listener.events.kafka_source import described, reads
from sparklag_offsets.checkpoints.offset_log import OffsetFile, parse_initial_offsets, parse_offsets
from sparklag_offsets.checkpoints.position import NO_SOURCES
from sparklag_offsets.errors import CheckpointAway, CheckpointGone
from sparklag_schemas import Observation, Offsets, SourcePosition
from sparklag_schemas.text.locations import redact_location
from sparklag_schemas.timestamps import epoch_ms

# Names of Spark's local properties of the thread that runs the batch.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_FILE_NOT_FOUND: Final = "java.io.FileNotFoundException"
_Parsed = TypeVar("_Parsed")
_runs: dict[str, _Run] = {}
"""The run of each query id, cached for all its batches."""
_runs_lock = Lock()


def observe_batch(batch: Any, batch_id: int, cluster: str) -> Observation:
    """The observation of the batch as if it were completed.

    Spark writes the batch's end offsets into the checkpoint before it runs. Only Kafka sources are
    included. Raises NotInBatch, UnsupportedSession, UnsupportedSpark, CheckpointError.
    """
    spark = _session_of(batch)
    try:
        run = _run_of(spark, batch_id)
    except UNAVAILABLE as error:
        raise UnsupportedSpark(
            f"keep_offsets(): Spark {spark.version} does not expose the query of this batch:"
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
        ends_by_itself=run.description.ends_by_itself,
        observed_at=now_ms,
        batch_id=batch_id,
        processed_at=now_ms,
        sources=run.positions(batch_id),
        checkpoint_location=run.description.checkpoint_location,
    )


class JvmFiles:
    """The files of one folder in any store, read as Spark does: through Hadoop's FileSystem, with
    Spark's credentials."""

    def __init__(self, spark: Any, folder: str) -> None:
        """`spark` is a classic session. Reads nothing yet. Raises Py4JError."""
        self.shown = redact_location(folder)
        self._folder = folder
        # Cached: each part of a class's name costs a command.
        self._path = spark._jvm.org.apache.hadoop.fs.Path
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        self._system = self._path(folder).getFileSystem(configuration)
        self._writer = spark._jvm.java.io.StringWriter
        self._copy = spark._jvm.org.apache.commons.io.IOUtils.copy

    def read(self, name: str) -> bytes | None:
        """The content of a file, such as `offsets/5`. None: there is no such file. 8 Py4J commands
        for a short file. Raises CheckpointAway."""
        try:
            stream = self._system.open(self._path(f"{self._folder}/{name}"))
            try:
                # Into a StringWriter, to read it in chunks.
                writer = self._writer()
                self._copy(stream, writer, "UTF-8")
                return read_text(writer.getBuffer()).encode()
            finally:
                stream.close()
        except (Py4JError, OSError) as error:
            java = error.java_exception if isinstance(error, Py4JJavaError) else None
            if java is not None and java.getClass().getName() == _FILE_NOT_FOUND:
                return None
            raise CheckpointAway(f"{self.shown}: {name}: {brief(error)}") from error


class _Run:
    def __init__(self, spark: Any, execution: Any) -> None:
        self.query_id = str(execution.id().toString())
        self.run_id = str(execution.runId().toString())
        self.name: str | None = execution.name()
        self.description = describe_execution(execution)
        self._execution = execution
        self._files = JvmFiles(spark, str(execution.resolvedCheckpointRoot()))
        self._previous: tuple[int, OffsetFile] | None = None

    def is_active(self) -> bool:
        try:
            return bool(self._execution.isActive())
        except (Py4JError, OSError):
            # The JVM is gone.
            return False

    def positions(self, batch_id: int) -> list[SourcePosition]:
        """Start and end of each Kafka source in this batch. Raises CheckpointError."""
        planned = self._read(f"offsets/{batch_id}", parse_offsets)
        if planned is None:
            raise CheckpointGone(
                f"{self._files.shown}: offsets/{batch_id} is gone while its batch runs"
            )
        before = None
        if self._previous is not None and self._previous[0] == batch_id - 1:
            before = self._previous[1]
        elif batch_id > 0:
            # Spark does not purge the file of the previous batch.
            before = self._read(f"offsets/{batch_id - 1}", parse_offsets)
        tracked = NO_SOURCES.after(before) if before is not None else NO_SOURCES
        self._previous = batch_id, planned
        positions = []
        for source in tracked.positions(planned)[0]:
            if source.planned is None or not self._is_kafka(source.planned):
                continue
            began, number = source.processed, source.source
            if began is None:
                folder = planned.names[number] if planned.names else number
                began = self._read(f"sources/{folder}/0", parse_initial_offsets)
            positions.append(SourcePosition(source=number, processed=source.planned, began=began))
        return described(positions, self.description) if positions else []

    def _is_kafka(self, offsets: Offsets) -> bool:
        # Other sources may have offsets of the same JSON shape.
        sources = self.description.sources
        return not sources or any(reads(source, set(offsets)) for source in sources)

    def _read(self, name: str, parse: Callable[[bytes, str], _Parsed]) -> _Parsed | None:
        content = self._files.read(name)
        return parse(content, f"{self._files.shown}/{name}") if content is not None else None


def _session_of(batch: Any) -> Any:
    session = getattr(batch, "sparkSession", None)
    if session is None:
        raise UnsupportedSession(
            "keep_offsets() takes the DataFrame that foreachBatch is called with, got"
            f" {type(batch).__module__}.{type(batch).__name__}"
        )
    if getattr(session, "_jsparkSession", None) is None:
        raise UnsupportedSession(
            "keep_offsets() needs a classic Spark session, this is a Spark Connect session: its"
            " client cannot read the checkpoint"
        )
    return session


def _run_of(spark: Any, batch_id: int) -> _Run:
    session = spark._jsparkSession
    context = session.sparkContext()
    query_id = context.getLocalProperty(_QUERY_ID)
    run = _runs.get(query_id)
    if run is None or not run.is_active():
        run = _load_run(spark, query_id)
    running = context.getLocalProperty(_BATCH_ID)
    if running != str(batch_id):
        raise NotInBatch(f"keep_offsets() is called with batch {batch_id} within batch {running}")
    return run


def _load_run(spark: Any, query_id: str | None) -> _Run:
    # The session of a batch is a clone, with an empty list of queries.
    active = spark._jsparkSession.sharedState().activeStreamingQueries()
    uuid = spark._jvm.java.util.UUID
    execution = active.get(uuid.fromString(query_id)) if query_id is not None else None
    if query_id is None or execution is None:
        raise NotInBatch(
            "keep_offsets() is called within foreachBatch's function, in the thread that Spark"
            " calls it in (with PYSPARK_PIN_THREAD as it is by default)"
        )
    run = _Run(spark, execution)
    with _runs_lock:
        for ended_id in [each for each, other in _runs.items() if not other.is_active()]:
            del _runs[ended_id]
        _runs[query_id] = run
    return run
