"""The errors of this package. Only `observe` and `keep_offsets` raise them: after `observe` nothing
is raised into the driver.

ListenerError
├── SessionStopped
├── UnsupportedSession
├── UnsupportedSpark
├── NoListener
├── NoBrokers
├── ServerAway
├── MissingService
├── AlreadyObserved
└── NotInBatch
"""

from __future__ import annotations

from sparklag_schemas import SparklagError


class ListenerError(SparklagError):
    """Not possible with this session; the text has the reason, and what to do."""


class SessionStopped(ListenerError):
    """The Spark session was stopped before `observe` was called."""


class UnsupportedSession(ListenerError):
    """Not a Spark session, or not of the kind that `method` needs."""


class UnsupportedSpark(ListenerError):
    """This version of Spark lacks what is needed."""


class NoListener(ListenerError):
    """Spark does not take our listener; polling may work."""


class NoBrokers(ListenerError):
    """Spark Connect without `bootstrap_servers`: its client cannot read them from a query."""


class ServerAway(ListenerError):
    """The Spark Connect server does not answer."""


class MissingService(ListenerError):
    """`embedded=True` without the `service` extra."""


class AlreadyObserved(ListenerError):
    """`observe` was called before for this session, with other arguments."""


class NotInBatch(ListenerError):
    """Called outside of the batch that runs in foreachBatch."""
