"""The errors of this package. Only `observe` raises them: afterwards nothing reaches the driver.

ListenerError
├── SessionStopped
├── UnsupportedSession     a Spark Connect session
├── UnsupportedSpark       older than 3.4
└── MissingService         embedded, without the `service` extra
"""

from __future__ import annotations

from sparklag_schemas import SparklagError


class ListenerError(SparklagError):
    """`observe` cannot watch this session; the text says why, and what to do."""


class SessionStopped(ListenerError):
    """The Spark session was stopped before `observe` was called."""


class UnsupportedSession(ListenerError):
    """Not a classic session."""


class UnsupportedSpark(ListenerError):
    """Spark has no listener interface for Python yet in this version."""


class MissingService(ListenerError):
    """`embedded=True` needs what the `service` extra brings."""
