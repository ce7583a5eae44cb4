"""Runs in the Spark driver: observes its queries and publishes their positions."""

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
from sparklag_listener.starting_offsets import ending_offsets, starting_offsets
from sparklag_listener.stats import Stats
from sparklag_listener.transaction import keep_offsets, prepare_store

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
