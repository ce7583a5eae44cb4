"""Runs in the Spark driver: observes its queries and publishes their positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparklag_listener.errors import (
    AlreadyObserved as AlreadyObserved,
    AmbiguousQueryName as AmbiguousQueryName,
    HandleClosed as HandleClosed,
    LagUnavailable as LagUnavailable,
    ListenerError as ListenerError,
    MissingService as MissingService,
    NoBrokers as NoBrokers,
    NoListener as NoListener,
    NotInBatch as NotInBatch,
    QueryNotFound as QueryNotFound,
    ServerAway as ServerAway,
    SessionStopped as SessionStopped,
    UnsupportedSession as UnsupportedSession,
    UnsupportedSpark as UnsupportedSpark,
)
from sparklag_listener.handle import ObserverHandle as ObserverHandle
from sparklag_listener.lag.lags import Lags as Lags
from sparklag_listener.observe import observe as observe
from sparklag_listener.stats import Stats as Stats

if TYPE_CHECKING:
    from sparklag_listener.stored_offsets import (
        ending_offsets as ending_offsets,
        keep_offsets as keep_offsets,
        prepare_store as prepare_store,
        starting_offsets as starting_offsets,
    )


def __getattr__(name: str) -> Any:
    # A driver that only observes does not import these: they take as long as the rest.
    if name in ("ending_offsets", "keep_offsets", "prepare_store", "starting_offsets"):
        from sparklag_listener import stored_offsets

        return getattr(stored_offsets, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
