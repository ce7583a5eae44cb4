"""Events of the JVM's listener bus, made by Spark's own classes."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession

from tests import samples

QUERY_ID, RUN_ID = "11111111-0000-4000-8000-000000000000", "22222222-0000-4000-8000-000000000000"


def progress_event(spark: SparkSession, sample: str, **fields: Any) -> Any:
    """A progress event of the JVM, made of a sample by Spark's own reader."""
    jvm = spark._jvm
    assert jvm is not None
    # It wants offsets as text, and nothing left out.
    document = {**samples.progress_document(sample), "eventTime": {}, "observedMetrics": {}}
    document.update(fields)
    for source in document["sources"]:
        for offset in ("startOffset", "endOffset", "latestOffset"):
            if source.get(offset) is not None:
                source[offset] = json.dumps(source[offset])
    streaming = jvm.org.apache.spark.sql.streaming
    module = getattr(getattr(streaming, "StreamingQueryProgress$"), "MODULE$")
    make_event = getattr(streaming, "StreamingQueryListener$QueryProgressEvent")
    return make_event(module.fromJson(json.dumps(document)))


def started_event(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    uuid = jvm.java.util.UUID.fromString
    make = getattr(jvm.org.apache.spark.sql.streaming, "StreamingQueryListener$QueryStartedEvent")
    return make(uuid(QUERY_ID), uuid(RUN_ID), "orders", "2026-11-20T10:00:00.000Z")
