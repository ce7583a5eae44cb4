"""Runs in the Spark driver: observes its queries and publishes their positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparklag_listener.errors import (
    AlreadyObserved,
    AmbiguousQueryName,
    HandleClosed,
    LagUnavailable,
    ListenerError,
    MissingService,
    NoBrokers,
    NoListener,
    NotInBatch,
    QueryNotFound,
    ServerAway,
    SessionStopped,
    UnsupportedSession,
    UnsupportedSpark,
)
from sparklag_listener.handle import ObserverHandle
from sparklag_listener.lag.lags import Lags
from sparklag_listener.observe import observe
from sparklag_listener.stats import Stats

if TYPE_CHECKING:
    from sparklag_listener.stored_offsets import (
        ending_offsets,
        keep_offsets,
        prepare_store,
        starting_offsets,
    )

__all__ = [
    "AlreadyObserved",
    "AmbiguousQueryName",
    "HandleClosed",
    "LagUnavailable",
    "Lags",
    "ListenerError",
    "MissingService",
    "NoBrokers",
    "NoListener",
    "NotInBatch",
    "ObserverHandle",
    "QueryNotFound",
    "ServerAway",
    "SessionStopped",
    "Stats",
    "UnsupportedSession",
    "UnsupportedSpark",
    "ending_offsets",
    "keep_offsets",
    "observe",
    "prepare_store",
    "starting_offsets",
]


def __getattr__(name: str) -> Any:
    # A driver that only observes does not import these: they take as long as the rest.
    if name in ("ending_offsets", "keep_offsets", "prepare_store", "starting_offsets"):
        from sparklag_listener import stored_offsets

        return getattr(stored_offsets, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
