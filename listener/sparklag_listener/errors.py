"""The errors of this package. `observe` raises them, and afterwards nothing reaches the driver;
`keep_offsets` does, for the batch must not be written then.

ListenerError
├── SessionStopped
├── UnsupportedSession     none of Spark's, or not for the `method` that is asked for
├── UnsupportedSpark       too old
├── NoListener             Spark takes none; polling may work
├── NoBrokers              Spark Connect, without `bootstrap_servers`
├── ServerAway             Spark Connect, and its server does not answer
├── MissingService         embedded, without the `service` extra
└── NotInBatch             outside foreachBatch
"""

from __future__ import annotations

from sparklag_schemas import SparklagError


class ListenerError(SparklagError):
    """What was asked for cannot be done with this session; the text says why, and what to do."""


class SessionStopped(ListenerError):
    """The Spark session was stopped before `observe` was called."""


class UnsupportedSession(ListenerError):
    """No Spark session, or not one that `method` is for."""


class UnsupportedSpark(ListenerError):
    """This version of Spark lacks what is needed."""


class NoListener(ListenerError):
    """Spark does not take a listener of ours."""


class NoBrokers(ListenerError):
    """A Connect client does not see which brokers a query reads from."""


class ServerAway(ListenerError):
    """The Spark Connect server does not answer."""


class MissingService(ListenerError):
    """`embedded=True` needs what the `service` extra brings."""


class NotInBatch(ListenerError):
    """It was called elsewhere than in the batch that runs."""
