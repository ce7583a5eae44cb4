"""The page of all metrics, from the families that the service renders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from prometheus_client import Metric

from scripts.idle_instance import idle_instance
from scripts.markdown_tables import row
from scripts.schema_documents import documents
from sparklag_schemas import decode_lag_event
from sparklag_service.enrichment.cluster_offsets import ClusterMetadata
from sparklag_service.metrics.exposition import ServiceMetrics
from sparklag_service.metrics.families import LabelledGauge, NamedQuery, Scheme
from sparklag_service.metrics.schemes import KAFKA_LAG_EXPORTER, NATIVE, ages, kafka_exporter

_INTRODUCTION: Final = """\
# Metrics
What `GET /metrics` has. How the series behave:
[metrics, alerts and dashboards](../operator/metrics.md). An unknown value has no sample."""
_HEAD: Final = ("| metric | type | more labels | |", "| --- | --- | --- | --- |")

_OTHERS: Final = {
    "group": {"state": "Stable"},
    "running_batch": {"batch_id": 1, "observed_at": 0, "started_at": 0, "progressed_at": 0},
}
"""What the example of a lag event leaves out, and some labels are of."""
_CLUSTER: Final = ClusterMetadata({1: ("broker", 9092)}, {})


def metrics_page() -> list[str]:
    """Its lines."""
    lines = [*_INTRODUCTION.split("\n"), "", "## Queries, topics and partitions"]
    lines += _scheme(NATIVE)
    lines += ["", "## The service", "Of one instance.", "", *_HEAD]
    lines += map(_of_service, ServiceMetrics(idle_instance()).collect())
    for name, scheme in (
        ("kafka-lag-exporter", KAFKA_LAG_EXPORTER),
        ("kafka_exporter", kafka_exporter("default")),
    ):
        lines += ["", f"## Names of {name}", f'With `metrics.compat = ["{name}"]`.']
        lines += _scheme(scheme)
    return lines


def _scheme(scheme: Scheme) -> Iterator[str]:
    (example,) = json.loads(documents()["documents/lag_event.schema.json"])["examples"]
    event = decode_lag_event(json.dumps(example | _OTHERS).encode())
    query = NamedQuery(event, event.display_name)
    of_query = list(scheme.query_labels(query))
    (of_topic, topic), *_ = scheme.topics(query)
    of_partition = [*of_topic, "partition", *scheme.partition_end]
    of_log = list(scheme.log_labels(event.cluster, topic.topic) or {})
    of_cluster = list(scheme.cluster_labels(event.cluster) or {})
    aged = ages(0) if scheme is NATIVE else ()
    yield from _level([*scheme.query, *aged], of_query, event)
    yield from _level(scheme.topic, list(of_topic))
    yield from _level([*scheme.partition, *scheme.partition_at_risk], of_partition)
    yield from _level(scheme.log_topic, of_log)
    yield from _level([*scheme.log_partition, *scheme.log_replicas], [*of_log, "partition"])
    yield from _level(scheme.cluster, of_cluster, _CLUSTER)


def _level(families: Any, labels: list[str], subject: Any = None) -> Iterator[str]:
    """The families of one level, which share these labels."""
    if families:
        of_each = f"Labels of each: {_names(labels)}." if labels else "Without labels of their own."
        yield from ("", of_each, "", *_HEAD)
    for family in families:
        samples = list(family.read(subject)) if isinstance(family, LabelledGauge) else []
        more = list(samples[0][0]) if samples else []
        yield row(f"`{family.name}`", family.kind, _names(more), family.meaning)


def _of_service(family: Metric) -> str:
    name = family.name + ("_total" if family.type == "counter" else "")
    # Without a sample, only the family itself has the names.
    labels: list[str] = list(getattr(family, "_labelnames", ()))
    return row(f"`{name}`", family.type, _names(labels), family.documentation)


def _names(labels: list[str]) -> str:
    return ", ".join(f"`{label}`" for label in labels)
