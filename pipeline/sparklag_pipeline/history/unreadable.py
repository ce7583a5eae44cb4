"""Values that are no lag event: none is dropped without a word."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, count_if, lit, pmod, struct, when, xxhash64
from pyspark.sql.functions import min as least

METRICS: Final = "unreadable"
"""Of the observed metrics in a batch's progress."""

_PLACES: Final = 10
_COUNT: Final = "values"

log = logging.getLogger(__name__)


def counted(events: DataFrame) -> DataFrame:
    """The same rows (see `events.events`), with what cannot be read as metrics of each batch: how
    many, and up to ten places with the reason."""
    unreadable = col("unreadable").isNotNull()
    # Whatever comes, ten structs are held and no more: one of each tenth of all places.
    tenth = pmod(xxhash64("topic", "partition", "offset"), lit(_PLACES))
    place = struct("topic", "partition", "offset", "unreadable")
    places = (
        least(when(unreadable & (tenth == number), place)).alias(f"place_{number}")
        for number in range(_PLACES)
    )
    return events.observe(METRICS, count_if(unreadable).alias(_COUNT), *places)


def tell(batch_id: int, metrics: dict[str, Any]) -> None:
    """Log what a batch could not read; nothing where that was nothing."""
    count = metrics.get(_COUNT) or 0
    if not count:
        return
    places = sorted(_places(metrics))
    more = f" (and {count - len(places)} more)" if count > len(places) else ""
    log.warning(
        "batch %d: %d values that are no lag event are left out: %s%s",
        batch_id,
        count,
        "; ".join(
            f"{topic} {partition} at {offset}: {why}" for topic, partition, offset, why in places
        ),
        more,
    )


def _places(metrics: dict[str, Any]) -> Iterator[tuple[str, int, int, str]]:
    for number in range(_PLACES):
        found = metrics.get(f"place_{number}")
        if found is not None:
            yield found["topic"], found["partition"], found["offset"], found["unreadable"]
