"""A metric family, and the lines of its samples.

A block is the lines of some samples, each *begun* by its line feed: blocks follow one another as
they are, and a header needs none at its end. Formats: Prometheus text 0.0.4, OpenMetrics 1.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from sparklag_service.metrics.label_text import pairs

Number = int | float

Subject = TypeVar("Subject")


@dataclass(frozen=True)
class Family:
    """What is said of a metric before its samples."""

    name: str
    meaning: str
    unit: str = ""
    """The end of its name, where that is a unit."""
    kind: Literal["gauge", "info"] = "gauge"

    def header(self, *, open_metrics: bool) -> bytes:
        """Its type, unit and meaning."""
        meaning = self.meaning.replace("\\", "\\\\").replace("\n", "\\n")
        if not open_metrics:
            # It knows no other type for what is said in labels alone.
            return f"# HELP {self.name} {meaning}\n# TYPE {self.name} gauge".encode()
        name = self.name.removesuffix("_info") if self.kind == "info" else self.name
        meaning = meaning.replace('"', '\\"')
        unit = f"# UNIT {name} {self.unit}\n" if self.unit else ""
        return f"# TYPE {name} {self.kind}\n{unit}# HELP {name} {meaning}".encode()


@dataclass(frozen=True)
class Gauge(Family, Generic[Subject]):
    """A family with one value, or none, of each subject."""

    read: Callable[[Subject], Number | None] = lambda _: None

    @property
    def form(self) -> str:
        """What `%` makes of a value where there are many: seconds are given to a millisecond, and
        all else counts something."""
        return "%.3f" if self.unit == "seconds" else "%d"

    def block(self, subjects: Iterable[tuple[str, Subject]]) -> bytes:
        """The lines of subjects, each with its labels as `label_text.label_set` writes them."""
        name, read = f"\n{self.name}", self.read
        return "".join(
            [
                f"{name}{labels} {number(value)}"
                for labels, subject in subjects
                if (value := read(subject)) is not None
            ]
        ).encode()


@dataclass(frozen=True)
class Labelled(Family, Generic[Subject]):
    """A family with any number of values of each subject, told apart by labels of its own."""

    read: Callable[[Subject], Iterable[tuple[dict[str, str], Number]]] = lambda _: ()
    """Those labels, and the value."""

    def block(self, subjects: Iterable[tuple[str, Subject]]) -> bytes:
        """The lines of subjects, each with its labels as `label_text.label_set` writes them."""
        name, read = f"\n{self.name}", self.read
        return "".join(
            [
                f"{name}{labels[:-1]},{pairs(**own)}}} {number(value)}"
                for labels, subject in subjects
                for own, value in read(subject)
            ]
        ).encode()


def number(value: Number) -> str:
    """A value as both formats take it."""
    return repr(value) if isinstance(value, float) else str(int(value))
