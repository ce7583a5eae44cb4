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
from sparklag_listener.starting_offsets import ending_offsets, starting_offsets

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
    "ending_offsets",
    "observe",
    "starting_offsets",
]
