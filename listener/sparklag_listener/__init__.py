"""Runs inside the Spark driver: observes its queries and publishes their positions."""

from sparklag_listener.counters import Stats
from sparklag_listener.errors import (
    ListenerError,
    MissingService,
    NoBrokers,
    NoListener,
    ServerAway,
    SessionStopped,
    UnsupportedSession,
    UnsupportedSpark,
)
from sparklag_listener.handle import ObserverHandle
from sparklag_listener.observe import observe

__all__ = [
    "ListenerError",
    "MissingService",
    "NoBrokers",
    "NoListener",
    "ObserverHandle",
    "ServerAway",
    "SessionStopped",
    "Stats",
    "UnsupportedSession",
    "UnsupportedSpark",
    "observe",
]
