"""The lag of several queries, as `handle.lags()` returns it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparklag_schemas import LagEvent
from sparklag_schemas.formatting import records
from sparklag_schemas.printable import first_few, printable
from sparklag_schemas.timestamps import epoch_ms

if TYPE_CHECKING:
    import pandas

    from sparklag_listener.lag.tables import Table


class Lags(tuple[LagEvent, ...]):
    """The newest lag event of each query, by name."""

    __slots__ = ()

    def to_pandas(self, *, partitions: bool = False) -> pandas.DataFrame:
        """A row for each query, or each partition of each source.

        What is unknown is missing (`pandas.NA`), never 0; times are timestamps in UTC. Raises
        MissingPackage without pandas.
        """
        return self._table(partitions).to_pandas()

    def to_spark(self, spark: Any, *, partitions: bool = False) -> Any:
        """The same as a DataFrame of that Spark session, where it is null."""
        return self._table(partitions).to_spark(spark)

    def _table(self, partitions: bool) -> Table:
        # Not with the module, which every driver imports.
        from sparklag_listener.lag.tables import partition_table, query_table

        return partition_table(self) if partitions else query_table(self)

    def _repr_html_(self) -> str:
        from sparklag_listener.lag.html_table import lag_table

        return lag_table(self, epoch_ms())

    def __repr__(self) -> str:
        texts = [
            f"{printable(event.display_name, 80)} {printable(event.status)}"
            f" lag {records(event.total_lag)}"
            for event in self
        ]
        return f"<Lags: {first_few(texts) or 'no query'}>"
