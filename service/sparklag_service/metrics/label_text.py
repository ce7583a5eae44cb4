"""Labels as Prometheus and OpenMetrics write them: both escape alike."""

from __future__ import annotations

from sparklag_schemas.printable import printable


def escaped(value: str) -> str:
    """A label's value between its quotes. Control characters and the like stand there escaped."""
    if not value.isprintable():
        value = printable(value, len(value))
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def pairs(**labels: str) -> str:
    """`name="value"`, with commas between them."""
    return ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())


def label_set(**labels: str) -> str:
    """With braces around it."""
    return f"{{{pairs(**labels)}}}"
