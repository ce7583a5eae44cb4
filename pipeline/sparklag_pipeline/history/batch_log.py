"""What a query's batches have left out, said once for each batch."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

from sparklag_pipeline.history import unreadable

_LATE: Final = "numRowsDroppedByWatermark"

log = logging.getLogger(__name__)


class BatchLog:
    """Looks at the progress of one query.

    By asking, not by a listener: Spark drops listeners' events when they come too fast, and keeps
    the progress of the last hundred batches.
    """

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._told = -1

    def tell(self) -> None:
        """Log what batches since the last call have left out."""
        newest = self._query.lastProgress
        if newest is None or newest["batchId"] <= self._told:
            return
        since = [newest] if newest["batchId"] == self._told + 1 else self._query.recentProgress
        for progress in since:
            if progress["batchId"] > self._told:
                self._told = progress["batchId"]
                self._tell_of(progress)

    def _tell_of(self, progress: Mapping[str, Any]) -> None:
        metrics = (progress.get("observedMetrics") or {}).get(unreadable.METRICS)
        if metrics is not None:
            unreadable.tell(
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
