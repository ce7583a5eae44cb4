"""The errors of this package. Only calls of the user raise them: `observe`, `keep_offsets`, and
`lag` and `lags` of a handle. Nothing else is raised into the driver. Each is a ListenerError."""

from __future__ import annotations

from sparklag_schemas import SparklagError


class ListenerError(SparklagError):
    """The call is not possible with this session; the text has the reason and the remedy."""


class SessionStopped(ListenerError):
    """The Spark session was stopped before `observe` was called."""


class UnsupportedSession(ListenerError):
    """The object is not a Spark session, or not of the kind that `method` needs."""


class UnsupportedSpark(ListenerError):
    """This version of Spark lacks what is needed."""


class NoListener(ListenerError):
    """Spark does not accept our listener; polling may work."""


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


class HandleClosed(ListenerError):
    """The handle is closed, or this process is a fork of the one that observes."""


class LagUnavailable(ListenerError):
    """Lag cannot be read now, or not in time, from service or Kafka; the text has the reason."""


class QueryNotFound(ListenerError):
    """No query has this name or id, or no lag of it is published yet."""


class AmbiguousQueryName(ListenerError):
    """Several queries have this name, or ids that begin with it; the text lists them."""
