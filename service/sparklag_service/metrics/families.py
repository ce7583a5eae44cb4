"""A metric family, and the lines of its samples.

A block is the lines of some samples, each *begun* by its line feed: blocks follow one another as
they are, and a header needs none at its end. Formats: Prometheus text 0.0.4, OpenMetrics 1.0; both
escape labels alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from operator import attrgetter
from typing import Any, Generic, Literal, TypeVar

from sparklag_schemas.text.printable import printable

Number = int | float
Subject = TypeVar("Subject")
_MAX_LABEL = 250  # characters; topics have fewer
_UNITS = ("seconds", "bytes", "ratio")


def label_pairs(labels: Mapping[str, str]) -> str:
    """`name="value"`, with commas between them; control characters and the like escaped."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def label_set(labels: Mapping[str, str]) -> str:
    """The pairs with braces around them."""
    return f"{{{label_pairs(labels)}}}"


def _escaped(value: str) -> str:
    if len(value) > _MAX_LABEL:
        # The digest tells two values apart that begin alike.
        digest = blake2b(value.encode(errors="replace"), digest_size=8).hexdigest()
        value = f"{value[:_MAX_LABEL]}~{digest}"
    if not value.isprintable():
        value = printable(value, len(value))
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@dataclass(frozen=True)
class Family:
    """A metric without its samples."""

    name: str
    meaning: str

    @property
    def unit(self) -> str:
        """The end of its name, where that is a unit."""
        return next((unit for unit in _UNITS if self.name.endswith(f"_{unit}")), "")

    @property
    def kind(self) -> Literal["gauge", "info"]:
        """Its type in OpenMetrics."""
        return "info" if self.name.endswith("_info") else "gauge"

    @property
    def value_format(self) -> str:
        """For partitions: seconds to a millisecond, and all else counts something."""
        return "%.3f" if self.unit == "seconds" else "%d"

    def header(self, *, open_metrics: bool) -> bytes:
        """Its type, unit and meaning."""
        meaning = self.meaning.replace("\\", "\\\\").replace("\n", "\\n")
        if not open_metrics:
            # It has no type `info`.
            return f"# HELP {self.name} {meaning}\n# TYPE {self.name} gauge".encode()
        name = self.name.removesuffix("_info")
        meaning = meaning.replace('"', '\\"')
        unit = f"# UNIT {name} {self.unit}\n" if self.unit else ""
        return f"# TYPE {name} {self.kind}\n{unit}# HELP {name} {meaning}".encode()


@dataclass(frozen=True)
class Gauge(Family, Generic[Subject]):
    """A family with one value, or none, of each subject."""

    read: Callable[[Subject], Number | None]

    def block(self, subjects: Iterable[tuple[str, Subject]]) -> bytes:
        """The lines of subjects, each with its `label_set`."""
        name, read, text = f"\n{self.name}", self.read, _text_of(self)
        return "".join(
            [
                f"{name}{labels} {text(value)}"
                for labels, subject in subjects
                if (value := read(subject)) is not None
            ]
        ).encode()


@dataclass(frozen=True)
class LabelledGauge(Family, Generic[Subject]):
    """A family with any number of values of each subject, told apart by labels of its own."""

    read: Callable[[Subject], Iterable[tuple[dict[str, str], Number]]]
    """Those labels, and the value."""

    def block(self, subjects: Iterable[tuple[str, Subject]]) -> bytes:
        """The lines of subjects, each with its `label_set`."""
        name, read, text = f"\n{self.name}", self.read, _text_of(self)
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
    """From rows: name, attribute of the subject (or a function that reads it), meaning."""
    return tuple(
        Gauge(prefix + name, meaning, read if callable(read) else attrgetter(read))
        for name, read, meaning in rows
    )


def _text_of(family: Family) -> Callable[[Number], str]:
    return "{:.3f}".format if family.unit == "seconds" else _number


def _number(value: Number) -> str:
    return repr(value) if isinstance(value, float) else str(int(value))
