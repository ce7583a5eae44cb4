"""The state of a running service for REST and metrics, which never read the pipeline itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sparklag_schemas import ResolvedSettings
from sparklag_service.counters import Counters
from sparklag_service.enrichment.cluster_offsets import ClusterMetadata
from sparklag_service.view.view import View


def gauge(meaning: str) -> Any:
    """A field that `/metrics` shows under its own name."""
    return field(metadata={"meaning": meaning})


@dataclass(frozen=True)
class InstanceStatus:
    """The figures of this instance at one time. None: unknown, or not configured."""

    task_restarts: Mapping[str, int]
    """Restarts by task."""
    stage_failures: Mapping[str, int]
    """Failures with one query, by stage."""
    limit_shares: Mapping[str, tuple[int, int]]
    """Used and limit, by setting."""
    clusters_up: Mapping[str, bool]
    """True where a broker responds, by alias."""
    record_times: Mapping[str, Mapping[str, int]]
    """The counts of `RecordTimeCounts`, by cluster."""

    ready: bool = gauge("Whether every part is ready.")
    queries: int = gauge("Queries in the view.")
    owned_queries: int = gauge("Queries this instance measures.")
    queue_size: int = gauge("Observations that wait to be tracked.")
    unpublished_queries: int = gauge(
        "Queries whose newest observation is in no acknowledged lag event yet."
    )
    intake_behind: int | None = gauge("Observations in Kafka that were not received yet.")
    unreadable: int = gauge(
        "Checkpoints, patterns of them, and lists of groups that cannot be read."
    )
    mirror_failing: int | None = gauge(
        "Groups, brokers and clusters that the mirror cannot commit to."
    )
    intake_age_seconds: float | None = gauge(
        "Time since the intake last was known to have received every observation."
    )
    stream_readers: int = gauge("Readers of the live stream.")
    history_bytes: int = gauge("Memory of the history.")


class ServiceState(Protocol):
    """The state of the service in memory, read-only."""

    @property
    def settings(self) -> ResolvedSettings:
        """The settings as resolved at the start."""

    @property
    def counters(self) -> Counters:
        """Counts since the start."""

    @property
    def view(self) -> View:
        """The newest event of every query."""

    @property
    def owned_queries(self) -> Collection[str]:
        """Ids of the queries that this instance measures."""

    @property
    def metadata(self) -> Mapping[str, ClusterMetadata]:
        """The metadata of each cluster with a broker that responds, by alias."""

    def not_ready(self) -> dict[str, str]:
        """The parts that are not ready, with the reason. Empty: all are ready."""

    def degraded(self) -> dict[str, str]:
        """Parts that fail without effect on readiness, with the reason."""

    def status(self) -> InstanceStatus:
        """The figures of this moment."""
