"""Lag events from `consumer-lag` as a Spark stream, and a log of the values that are left out."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import coalesce, col, concat, expr, lit, when
from pyspark.sql.streaming.query import StreamingQuery

from sparklag_jobs.history.tables import CORRUPT, avro_schema, event_schema
from sparklag_kafka.login import Login
from sparklag_schemas import LagEvent, MalformedMessage, RegistrySettings
from sparklag_schemas.codec import MAX_MESSAGE_BYTES
from sparklag_schemas.errors import SettingsError
from sparklag_schemas.messages.enumerations import SCHEMA_VERSION
from sparklag_schemas.settings import ClusterAccess, KafkaSettings

_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def kafka_options(access: ClusterAccess) -> dict[str, str]:
    """The `kafka.*` options. Certificates and keys are PEM text, since remote executors lack the
    files. Raises SettingsError for a file that cannot be read, or whose format Java does not
    support."""
    kafka = access.kafka
    options = {
        "kafka.bootstrap.servers": access.bootstrap_servers,
        "kafka.security.protocol": kafka.security_protocol,
        "kafka.client.id": kafka.client_id,
    }
    if kafka.security_protocol.startswith("SASL"):
        login = _LOGIN_MODULES.get(kafka.sasl_mechanism)
        if login is None:
            raise SettingsError(f"the job takes no kafka.sasl_mechanism = {kafka.sasl_mechanism!r}")
        user, password = _quoted(kafka.sasl_username or ""), _quoted(Login(kafka).password())
        options["kafka.sasl.mechanism"] = kafka.sasl_mechanism
        options["kafka.sasl.jaas.config"] = f"{login} required username={user} password={password};"
    if kafka.security_protocol.endswith("SSL"):
        options |= _tls(kafka)
    return options


def _tls(kafka: KafkaSettings) -> dict[str, str]:
    options = {}
    if not kafka.ssl_check_hostname:
        options["kafka.ssl.endpoint.identification.algorithm"] = ""
    if kafka.ssl_cafile is not None:
        options["kafka.ssl.truststore.type"] = "PEM"
        options["kafka.ssl.truststore.certificates"] = _pem("ssl_cafile", kafka.ssl_cafile)
    if kafka.ssl_certfile is not None:
        chain = _pem("ssl_certfile", kafka.ssl_certfile)
        # As in Python's ssl, the key may be in the certificate's file.
        key = chain if kafka.ssl_keyfile is None else _pem("ssl_keyfile", kafka.ssl_keyfile)
        options["kafka.ssl.keystore.type"] = "PEM"
        options["kafka.ssl.keystore.certificate.chain"] = chain
        options["kafka.ssl.keystore.key"] = _pkcs8(key, kafka.ssl_keyfile or kafka.ssl_certfile)
        if kafka.ssl_key_password is not None:
            options["kafka.ssl.key.password"] = kafka.ssl_key_password
    return options


def _pkcs8(key: str, file: str) -> str:
    if "BEGIN PRIVATE KEY" in key or "BEGIN ENCRYPTED PRIVATE KEY" in key:
        return key
    raise SettingsError(
        f"setting kafka.ssl_keyfile = {file!r}: Java takes a key in PKCS #8"
        " (openssl pkcs8 -topk8 makes one)"
    )


def _pem(setting: str, file: str) -> str:
    try:
        return Path(file).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"setting kafka.{setting} = {file!r}: {error}") from error


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


_MAJOR: Final = int(SCHEMA_VERSION.split(".")[0])
_YEAR_10000_MS: Final = 253_402_300_800_000
_EVENT: Final = f"struct<{event_schema()}>"
_UNKNOWN_ID: Final = "sparklag: unknown schema id "
"""Start of the error of a query that meets such an id; the id follows."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WriterSchemas:
    """The schemas of the writers of Avro values, by schema id."""

    has_registry: bool = False
    """True if unknown ids can be looked up."""
    schemas: Mapping[int, str] = field(default_factory=dict)
    refused: Mapping[int, str] = field(default_factory=dict)
    """Why values with a schema id cannot be read, by id."""


NO_AVRO: Final = WriterSchemas()


def unknown_schema_id(error: StreamingQueryException) -> int | None:
    """The schema id that a query failed for. None: it failed for another reason."""
    match = re.search(rf"{_UNKNOWN_ID}(\d+)", str(error))
    return int(match[1]) if match else None


def look_up(avro: WriterSchemas, schema_id: int, registry: RegistrySettings) -> WriterSchemas:
    """Returns `avro` with the registry's schema for that id. Raises RegistryError."""
    # Only Avro needs these packages; `observe` has reported if they are missing.
    from sparklag_schemas.avro.registry import SchemaRegistry
    from sparklag_schemas.avro.schema import require_written_as

    schemas = SchemaRegistry(registry)
    asyncio.run(schemas.learn([schema_id]))
    try:
        schema = schemas.schema(schema_id)
        require_written_as(LagEvent, schema)
    except MalformedMessage as error:
        log.warning("values of schema id %d are left out: %s", schema_id, error)
        return replace(avro, refused={**avro.refused, schema_id: str(error)})
    log.info("values of schema id %d are lag events", schema_id)
    return replace(avro, schemas={**avro.schemas, schema_id: schema.text})


def events(kafka_rows: DataFrame, avro: WriterSchemas = NO_AVRO) -> DataFrame:
    """Rows of Kafka's source as events: `topic`, `partition`, `offset`, `event`, `unreadable`.

    `event` is a struct of `event_schema`, valid if `unreadable` is null; otherwise `unreadable` is
    the reason why the value cannot be read. A tombstone has no row. If the schema of a value is
    unknown but can be looked up, the query fails with an error for `unknown_schema_id`.
    """
    parsed = kafka_rows.where(col("value").isNotNull()).select(
        "topic",
        "partition",
        "offset",
        _is_framed().alias("is_framed"),
        _schema_id().alias("schema_id"),
        (fn.length("value") > MAX_MESSAGE_BYTES).alias("is_too_large"),
        _event(avro).alias("event"),
    )
    return parsed.select(
        "topic", "partition", "offset", "event", _unreadable(avro).alias("unreadable")
    )


def _is_framed() -> Column:
    """True for values in a registry's frame: 0, the schema's id in four bytes, the message."""
    return expr("substring(value, 1, 1) = X'00'")


def _schema_id() -> Column:
    """The schema id of a value. Null: the value has no frame, or only a part of it."""
    return expr(
        "if(substring(value, 1, 1) = X'00' AND length(value) >= 5,"
        " cast(conv(hex(substring(value, 2, 4)), 16, 10) AS bigint), null)"
    )


def _event(avro: WriterSchemas) -> Column:
    json = fn.from_json(
        col("value").cast("string"), event_schema(), {"columnNameOfCorruptRecord": CORRUPT}
    )
    nothing = lit(None).cast(_EVENT)
    # A chain of `when` needs a first condition.
    event = when(lit(False), nothing)
    for schema_id, writer in avro.schemas.items():
        reader = {"avroSchema": avro_schema(), "mode": "PERMISSIVE"}
        from_writer = from_avro(expr("substring(value, 6)"), writer, reader)
        event = event.when(_is_framed() & (_schema_id() == schema_id), from_writer.cast(_EVENT))
    if avro.has_registry:
        cached = [*avro.schemas, *avro.refused]
        failure = fn.raise_error(concat(lit(_UNKNOWN_ID), _schema_id().cast("string")))
        event = event.when(_is_framed() & ~_schema_id().isin(cached), failure.cast(_EVENT))
    return event.when(_is_framed(), nothing).otherwise(json)


def _unreadable(avro: WriterSchemas) -> Column:
    version = col("event.schema_version")
    major = expr("try_cast(substring_index(event.schema_version, '.', 1) as int)")
    measured_at = col("event.measured_at")
    reasons = (
        (col("is_too_large"), lit(f"larger than {MAX_MESSAGE_BYTES} bytes")),
        *((col("schema_id") == refused, lit(why)) for refused, why in avro.refused.items()),
        (
            lit(not avro.has_registry) & col("is_framed"),
            lit("it is in Avro, and no registry.url is set"),
        ),
        (col("is_framed") & col("event.event_id").isNull(), lit("not Avro of its schema")),
        (
            major > _MAJOR,
            concat(
                lit("written in schema version "),
                version,
                lit(f", this reads {_MAJOR}.x: upgrade sparklag here"),
            ),
        ),
        (
            col("event").isNull() | col(f"event.{CORRUPT}").isNotNull(),
            lit("not the JSON of a lag event"),
        ),
        (col("event.query_id").isNull(), lit("no query_id")),
        (col("event.event_id").isNull(), lit("no event_id")),
        (measured_at.isNull(), lit("no measured_at")),
        (~measured_at.between(0, _YEAR_10000_MS - 1), lit("measured_at is not epoch milliseconds")),
    )
    return coalesce(*(when(condition, reason) for condition, reason in reasons))


_METRICS: Final = "unreadable"
_COUNT: Final = "values"
_SAMPLES: Final = 10
_LATE: Final = "numRowsDroppedByWatermark"


def count_unreadable(events: DataFrame) -> DataFrame:
    """Returns the rows of `events`, with metrics of unreadable rows in each batch: their count, and
    up to ten offsets with reasons."""
    unreadable = col("unreadable").isNotNull()
    # Bounded: at most one sample for each tenth of all offsets.
    tenth = fn.pmod(fn.xxhash64("topic", "partition", "offset"), lit(_SAMPLES))
    sample = fn.struct("topic", "partition", "offset", "unreadable")
    samples = (
        fn.min(when(unreadable & (tenth == number), sample)).alias(f"sample_{number}")
        for number in range(_SAMPLES)
    )
    return events.observe(_METRICS, fn.count_if(unreadable).alias(_COUNT), *samples)


class BatchLog:
    """Logs the progress of one query.

    It polls: Spark drops the events of slow listeners, but keeps the progress of the last hundred
    batches.
    """

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._logged = -1

    def update(self) -> None:
        """Log the values that batches since the last call left out."""
        newest = self._query.lastProgress
        if newest is None or newest["batchId"] <= self._logged:
            return
        recent = [newest] if newest["batchId"] == self._logged + 1 else self._query.recentProgress
        for progress in recent:
            if progress["batchId"] > self._logged:
                self._logged = progress["batchId"]
                self._log(progress)

    def _log(self, progress: Mapping[str, Any]) -> None:
        metrics = (progress.get("observedMetrics") or {}).get(_METRICS)
        if metrics is not None:
            _log_unreadable(
                progress["batchId"], metrics.asDict() if hasattr(metrics, "asDict") else metrics
            )
        late = sum(operator.get(_LATE, 0) for operator in progress.get("stateOperators") or ())
        if late:
            log.warning(
                "batch %d of %s: events came too late for %d windows or more, and are in none;"
                " table partitions has them",
                *(progress["batchId"], self._query.name, late),
            )


def _log_unreadable(batch_id: int, metrics: Mapping[str, Any]) -> None:
    count = metrics.get(_COUNT) or 0
    if not count:
        return
    samples = (metrics.get(f"sample_{number}") for number in range(_SAMPLES))
    shown = sorted(
        (sample["topic"], sample["partition"], sample["offset"], sample["unreadable"])
        for sample in samples
        if sample is not None
    )
    log.warning(
        "batch %d: %d values that are no lag event are left out: %s%s",
        batch_id,
        count,
        "; ".join(f"{topic} {number} at {offset}: {why}" for topic, number, offset, why in shown),
        f" (and {count - len(shown)} more)" if count > len(shown) else "",
    )
