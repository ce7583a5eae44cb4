"""Metric families and the lines of their samples; schemes of families.

A block is the lines of some samples. Each line *begins* with its line feed, so blocks can be joined
directly. Formats: Prometheus text 0.0.4 and OpenMetrics 1.0, which escape labels alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from operator import attrgetter
from typing import Any, Generic, Literal, TypeVar

from sparklag_kafka.protocol.metadata import PartitionReplicas
from sparklag_schemas import LagEvent, PartitionLag, TopicLag
from sparklag_schemas.text.printable import printable
from sparklag_service.enrichment.cluster_offsets import ClusterMetadata

Number = int | float
Labels = dict[str, str]
Subject = TypeVar("Subject")
_MAX_LABEL = 250  # characters; topics have fewer
_UNITS = ("seconds", "bytes", "ratio")


def label_pairs(labels: Mapping[str, str]) -> str:
    """`name="value"` pairs, separated by commas; control characters are escaped."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def label_set(labels: Mapping[str, str]) -> str:
    return f"{{{label_pairs(labels)}}}"


def _escaped(value: str) -> str:
    if len(value) > _MAX_LABEL:
        # The digest distinguishes values with a common prefix.
        digest = blake2b(value.encode(errors="replace"), digest_size=8).hexdigest()
        value = f"{value[:_MAX_LABEL]}~{digest}"
    if not value.isprintable():
        value = printable(value, len(value))
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@dataclass(frozen=True)
class Family(Generic[Subject]):
    """A metric without its samples."""

    name: str
    meaning: str
    read: Callable[[Subject], Any]
    """Returns the data of a subject's samples: see Gauge and LabelledGauge."""

    @property
    def unit(self) -> str:
        """The unit at the end of the name, or an empty text."""
        return next((unit for unit in _UNITS if self.name.endswith(f"_{unit}")), "")

    @property
    def kind(self) -> Literal["gauge", "info"]:
        return "info" if self.name.endswith("_info") else "gauge"

    @property
    def value_format(self) -> str:
        """The format of a partition's value: seconds with milliseconds, other units as integers."""
        return "%.3f" if self.unit == "seconds" else "%d"

    def header(self, *, open_metrics: bool) -> bytes:
        meaning = self.meaning.replace("\\", "\\\\").replace("\n", "\\n")
        if not open_metrics:
            # Prometheus text has no type `info`.
            return f"# HELP {self.name} {meaning}\n# TYPE {self.name} gauge".encode()
        name = self.name.removesuffix("_info")
        meaning = meaning.replace('"', '\\"')
        unit = f"# UNIT {name} {self.unit}\n" if self.unit else ""
        return f"# TYPE {name} {self.kind}\n{unit}# HELP {name} {meaning}".encode()

    def _text(self) -> Callable[[Number], str]:
        return "{:.3f}".format if self.unit == "seconds" else _number


class Gauge(Family[Subject]):
    """A family with at most one value for each subject, which `read` returns."""

    def block(self, subjects: Iterable[tuple[str, Subject]]) -> bytes:
        name, read, text = f"\n{self.name}", self.read, self._text()
        return "".join(
            [
                f"{name}{labels} {text(value)}"
                for labels, subject in subjects
                if (value := read(subject)) is not None
            ]
        ).encode()


class LabelledGauge(Family[Subject]):
    """A family with any number of values for each subject: `read` returns labels and values."""

    def block(self, subjects: Iterable[tuple[str, Subject]]) -> bytes:
        name, read, text = f"\n{self.name}", self.read, self._text()
        return "".join(
            [
                f"{name}{labels[:-1]}{',' * (labels != '{}')}{label_pairs(more)}}} {text(value)}"
                for labels, subject in subjects
                for more, value in read(subject)
            ]
        ).encode()


def gauges(
    prefix: str, *rows: tuple[str, str | Callable[[Any], Number | None], str]
) -> tuple[Gauge[Any], ...]:
    """Gauges from rows of name, attribute of the subject or function that reads it, and meaning."""
    return tuple(
        Gauge(prefix + name, meaning, read if callable(read) else attribute(read))
        for name, read, meaning in rows
    )


def attribute(path: str) -> Callable[[Any], Number | None]:
    """A reader of an attribute, also of a part that may be null: `batch.rows`."""
    part, _, name = path.rpartition(".")
    if not part:
        return attrgetter(path)

    def read(subject: Any) -> Number | None:
        owner = getattr(subject, part)
        return None if owner is None else getattr(owner, name)

    return read


def _number(value: Number) -> str:
    return repr(value) if isinstance(value, float) else str(int(value))


@dataclass(frozen=True)
class NamedQuery:
    """A query, and its name in tools that know only consumer groups."""

    event: LagEvent
    group: str


@dataclass(frozen=True)
class Scheme:
    """The families that show a query's lag at each level, and the labels of each level."""

    query: tuple[Gauge[LagEvent] | LabelledGauge[LagEvent], ...]
    topic: tuple[Gauge[TopicLag], ...]
    partition: tuple[Gauge[PartitionLag], ...]
    query_labels: Callable[[NamedQuery], Labels]
    topics: Callable[[NamedQuery], Iterable[tuple[Labels, TopicLag]]]
    """Returns the topics that the query reads, each with its labels."""
    partition_at_risk: tuple[Gauge[PartitionLag], ...] = ()
    """Families only for queries with `is_at_risk`."""
    partition_end: Labels = field(default_factory=dict)
    """Labels after the partition label."""
    log_topic: tuple[Gauge[TopicLag], ...] = ()
    """Families of a topic, shown once for all queries that read it."""
    log_partition: tuple[Gauge[PartitionLag], ...] = ()
    log_replicas: tuple[Gauge[PartitionReplicas], ...] = ()
    """Families of each partition of such a topic, from its metadata."""
    log_labels: Callable[[str, str], Labels | None] = lambda cluster, topic: None
    """Returns labels by the cluster's alias and the topic's name. None: not shown."""
    cluster: tuple[Gauge[ClusterMetadata] | LabelledGauge[ClusterMetadata], ...] = ()
    cluster_labels: Callable[[str], Labels | None] = lambda cluster: None
    """Returns labels by the cluster's alias. None: not shown."""
