"""What a query's batches have left out, logged once for each batch."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, count_if, lit, pmod, struct, when, xxhash64
from pyspark.sql.functions import min as least
from pyspark.sql.streaming.query import StreamingQuery

_METRICS: Final = "unreadable"
_COUNT: Final = "values"
_SAMPLES: Final = 10
_LATE: Final = "numRowsDroppedByWatermark"

log = logging.getLogger(__name__)


def count_unreadable(events: DataFrame) -> DataFrame:
    """The same rows (see `events.events`), with metrics of the unreadable ones in each batch: how
    many there are, and up to ten offsets with the reason."""
    unreadable = col("unreadable").isNotNull()
    # Bounded, whatever comes: at most one sample of each tenth of all offsets.
    tenth = pmod(xxhash64("topic", "partition", "offset"), lit(_SAMPLES))
    sample = struct("topic", "partition", "offset", "unreadable")
    samples = (
        least(when(unreadable & (tenth == number), sample)).alias(f"sample_{number}")
        for number in range(_SAMPLES)
    )
    return events.observe(_METRICS, count_if(unreadable).alias(_COUNT), *samples)


class BatchLog:
    """Logs the progress of one query.

    By polling, not by a listener: Spark drops listeners' events when they come too fast, and keeps
    the progress of the last hundred batches.
    """

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._logged = -1

    def update(self) -> None:
        """Log what batches since the last call have left out."""
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
                progress["batchId"],
                self._query.name,
                late,
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
