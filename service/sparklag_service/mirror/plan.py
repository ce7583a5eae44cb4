"""Which query is mirrored to which group, and at which offsets. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from sparklag_offsets.restore.comparison import minimum_offsets
from sparklag_schemas import MirrorSettings, Offsets
from sparklag_schemas.name_patterns import NamePatterns
from sparklag_schemas.origins import traits_of
from sparklag_service.tracking.query_state import QueryState

_REMEMBERED: Final = 16_384


@dataclass(frozen=True)
class Position:
    """Where a query is on one Kafka cluster: what its group there is to say."""

    query_id: str
    name: str | None
    group: str
    observed_at_ms: int
    offsets: Offsets
    ended: bool = False


class MirrorPlan:
    """What `[mirror]` asks for."""

    def __init__(self, settings: MirrorSettings) -> None:
        self._template = settings.group
        self._take = lru_cache(_REMEMBERED)(NamePatterns(settings.queries, settings.exclude).take)

    def group(self, name: str | None, query_id: str, cluster: str) -> str | None:
        """The group of a query on a cluster, by that one's alias. None: it is not mirrored."""
        if not self._take(name, query_id):
            return None
        return self._template.format(query=name or query_id, query_id=query_id, cluster=cluster)

    def position(self, state: QueryState, cluster: str) -> Position | None:
        """None for a query that is not mirrored, or has processed nothing there."""
        processed = [s.processed for s in state.sources if s.cluster == cluster and s.processed]
        # A consumer group is its own mirror.
        if not processed or traits_of(state.origin).commits_offsets:
            return None
        group = self.group(state.name, state.query_id, cluster)
        if group is None:
            return None
        return Position(
            query_id=state.query_id,
            name=state.name,
            group=group,
            observed_at_ms=state.observed_at_ms,
            offsets=minimum_offsets(processed),
            ended=state.ended,
        )
