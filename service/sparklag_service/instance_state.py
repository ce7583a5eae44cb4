"""One instance as REST and metrics see it: see `view/service_state.py` and `rest/backend.py`."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from sparklag_schemas import ResolvedSettings
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_service.counters import Counters
from sparklag_service.enrichment.enricher import Enricher
from sparklag_service.history.history import History
from sparklag_service.intakes import Delivery, Intake
from sparklag_service.intakes.sources import Watchers
from sparklag_service.live.hub import LiveHub
from sparklag_service.mirror.mirror import Mirror
from sparklag_service.publishing.lag_publisher import LagPublisher
from sparklag_service.publishing.own_topics import OwnTopics
from sparklag_service.publishing.stage import Publishing
from sparklag_service.recording.store_recorder import StoreRecorder
from sparklag_service.rest.backend import StoredOffsets
from sparklag_service.supervision import Supervisor
from sparklag_service.tracking.query_limits import near_limits
from sparklag_service.tracking.tracked_queries import TrackedQueries
from sparklag_service.view.service_state import InstanceStatus
from sparklag_service.view.view import View
from sparklag_service.view.view_reader import ViewReader


@dataclass(frozen=True)
class InstanceState:
    """Reads the parts of a pipeline; changes none."""

    settings: ResolvedSettings
    counters: Counters
    supervisor: Supervisor
    queue: NewestQueue[Delivery]
    tracked: TrackedQueries
    intake: Intake
    watchers: Watchers
    enricher: Enricher
    publisher: LagPublisher
    publishing: Publishing
    topics: OwnTopics
    view: View
    view_reader: ViewReader
    live: LiveHub
    history: History
    stored_offsets: StoredOffsets
    recording: StoreRecorder | None
    mirror: Mirror | None

    @property
    def owned_queries(self) -> Collection[str]:
        """Ids of the queries that this instance measures."""
        return self.tracked.tracker.queries.keys()

    @property
    def unpublished(self) -> int:
        """Queries whose newest observation no acknowledged event covers yet."""
        return len(self.tracked.pending) + len(self.publishing)

    @property
    def limit_shares(self) -> dict[str, tuple[int, int]]:
        """How much of each limit is used: its setting, used, limit."""
        return {**self.tracked.limits.shares, **self.view.shares}

    def not_ready(self) -> dict[str, str]:
        """The parts that are not ready, and why. Empty when all are.

        Another cluster that is away keeps nobody from being ready: see `degraded`.
        """
        home = self.enricher.unreachable.get(self.settings.cluster)
        parts: dict[str, str | None] = {
            **{f"task {task}": why for task, why in self.supervisor.failing.items()},
            "topics": self.topics.ready,
            "intake": self.intake.ready,
            "view": self.view_reader.ready,
            "schema registry": self.publisher.waiting,
            "kafka": home if self.owned_queries else None,
        }
        return {part: reason for part, reason in parts.items() if reason is not None}

    def degraded(self) -> dict[str, str]:
        """What fails and concerns only what needs it, and why: clusters, checkpoints and groups
        that cannot be read, groups that cannot be committed to, the offset store."""
        reasons = dict(self.enricher.unreachable)
        if (refused := self.counters.refusals.recent) is not None:
            reasons["messages"] = refused
        if (near := near_limits(self.limit_shares)) is not None:
            reasons["limits"] = near
        for part in (self.watchers, self.recording, self.mirror):
            if part is not None:
                reasons.update(part.failing)
        return reasons

    def status(self) -> InstanceStatus:
        """See ServiceState."""
        caught_up_s, enricher = self.intake.caught_up_s, self.enricher
        return InstanceStatus(
            ready=not self.not_ready(),
            queries=len(self.view),
            owned_queries=len(self.owned_queries),
            queue_size=self.queue.qsize(),
            unpublished_queries=self.unpublished,
            intake_behind=self.intake.behind,
            unreadable=len(self.watchers.failing),
            mirror_failing=None if self.mirror is None else len(self.mirror.failing),
            intake_age_seconds=None if caught_up_s is None else time.monotonic() - caught_up_s,
            stream_readers=self.live.reading,
            history_bytes=self.history.archive.held_bytes,
            task_restarts=self.supervisor.restarts,
            stage_failures=self.tracked.failures.counts,
            limit_shares=self.limit_shares,
            clusters_up={alias: alias not in enricher.unreachable for alias in enricher.offsets},
            record_times={
                alias: times.counts.as_dict() for alias, times in enricher.record_times.items()
            },
        )
