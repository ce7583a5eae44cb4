"""One instance's state, for REST and metrics: `view/service_state.py`, `rest/system.py`."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Final

from sparklag_schemas.text.formatting import ago
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.enrichment.cluster_offsets import ClusterMetadata
from sparklag_service.pipeline import Pipeline
from sparklag_service.view.service_state import InstanceStatus

_NEAR: Final = 0.8
"""The service warns from this share of a limit."""


class InstanceState:
    """Reads the parts of a pipeline. Its only change to them is `forget`."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.settings = pipeline.settings
        self.counters = pipeline.counters
        self.view = pipeline.view
        self.live = pipeline.live
        self.history = pipeline.history
        self.forget = pipeline.ownership.forget
        self.owned_queries: Collection[str] = pipeline.tracked.keys()
        """Ids of the queries that this instance measures; updated in place."""

    @property
    def metadata(self) -> Mapping[str, ClusterMetadata]:
        poll_s = self._pipeline.group_poll_s
        return {
            alias: metadata._replace(group_poll_s=max(poll_s.get(alias, {}).values(), default=None))
            for alias, metadata in self._pipeline.enricher.metadata.items()
        }

    @property
    def unpublished(self) -> int:
        """Number of queries whose newest observation is in no acknowledged event yet."""
        return self._pipeline.tracked.unpublished + len(self._pipeline.publishing)

    @property
    def limit_shares(self) -> dict[str, tuple[int, int]]:
        """The use of each limit: setting to (used, limit)."""
        tracked, shown = self._pipeline.tracked.shares, self.view.shares
        # A query is tracked before its first event is in the view.
        return {**tracked, **shown, "queries": max(tracked["queries"], shown["queries"])}

    def not_ready(self) -> dict[str, str]:
        """An unreachable cluster, except the service's own, does not count: see `degraded`."""
        pipeline, writer = self._pipeline, self._pipeline.publishing.writer
        home = pipeline.enricher.unreachable.get(self.settings.cluster)
        parts: dict[str, str | None] = {
            **{f"task {task}": why for task, why in pipeline.supervisor.failing.items()},
            "topics": pipeline.topics.ready,
            "intake": pipeline.intake.ready,
            "view": pipeline.view_reader.ready,
            "schema registry": writer.waiting or pipeline.formats.waiting,
            # Nothing else is requested from Kafka before the topics exist.
            "kafka": home if pipeline.topics.ready is None else None,
            # An instance without queries publishes no event that could clear this failure.
            "publishing": writer.failing if self.owned_queries else None,
            "measuring": self._late(owned=True),
        }
        return {part: reason for part, reason in parts.items() if reason is not None}

    def degraded(self) -> dict[str, str]:
        """Failures that do not affect readiness, with the reason: other clusters, unreadable
        topics, checkpoints and groups, groups that refuse commits, the offset store, codec."""
        pipeline = self._pipeline
        reasons = {**pipeline.enricher.unreachable, **pipeline.enricher.unreadable}
        # See `not_ready`.
        reasons.pop(self.settings.cluster, None)
        if (refused := self.counters.refusals.recent) is not None:
            reasons["messages"] = refused
        if (late := self._late(owned=False)) is not None:
            reasons["measuring"] = late
        if (group_id := pipeline.view_reader.other_group()) is not None:
            reasons["lag topic"] = (
                f"group {group_id} writes to {self.settings.lag_topic} too: two services measure"
                " the same queries; use one group_id, or another lag_topic"
            )
        if (uncompressed := pipeline.publishing.writer.producer.uncompressed) is not None:
            reasons["compression"] = uncompressed
        if (near := near_limits(self.limit_shares)) is not None:
            reasons["limits"] = near
        for part in (pipeline.watchers, pipeline.recording, pipeline.mirror):
            if part is not None:
                reasons.update(part.failing)
        return reasons

    def _late(self, *, owned: bool) -> str | None:
        """Describes the queries with late events that this instance owns, or does not."""
        ids = self.owned_queries
        late = [event for event in self.view.late() if (event.query_id in ids) == owned]
        if not late:
            return None
        oldest = min(late, key=lambda event: event.measured_at)
        text = f"{len(late):,} of {len(self.view):,} queries are measured too late"
        text += f", {oldest.display_name} last {ago(oldest.measured_at, epoch_ms())}"
        return text if owned else f"{text}, by another instance or by none"

    def status(self) -> InstanceStatus:
        pipeline, enricher = self._pipeline, self._pipeline.enricher
        caught_up_s, mirror = pipeline.intake.caught_up_s, pipeline.mirror
        return InstanceStatus(
            ready=not self.not_ready(),
            queries=len(self.view),
            owned_queries=len(self.owned_queries),
            queue_size=pipeline.queue.qsize(),
            unpublished_queries=self.unpublished,
            intake_behind=pipeline.intake.behind,
            unreadable=len(pipeline.watchers.failing),
            mirror_failing=None if mirror is None else len(mirror.failing),
            intake_age_seconds=None if caught_up_s is None else time.monotonic() - caught_up_s,
            stream_readers=self.live.reading,
            history_bytes=self.history.archive.held_bytes,
            task_restarts=pipeline.supervisor.restarts,
            stage_failures=pipeline.tracked.failures,
            limit_shares=self.limit_shares,
            clusters_up={alias: alias not in enricher.unreachable for alias in enricher.offsets},
            record_times={
                alias: times.counts.as_dict() for alias, times in enricher.record_times.items()
            },
        )


def near_limits(shares: Mapping[str, tuple[int, int]]) -> str | None:
    """Describes the limits that are nearly reached. None: no limit is."""
    near = [
        f"{used:,} of {limit:,} (limits.{setting})"
        for setting, (used, limit) in shares.items()
        if used >= _NEAR * limit
    ]
    return ", ".join(near) or None
