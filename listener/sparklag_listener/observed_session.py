"""A Spark session of either kind, as far as it is observed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from sparklag_listener.classic.listener_watch import Listener
from sparklag_listener.events.queries import Queries
from sparklag_listener.events.query_events import QueryEvent
from sparklag_schemas import Origin

HandOver = Callable[[QueryEvent], None]
OnError = Callable[[BaseException], None]


class ObservedSession(Protocol):
    """What a handle needs of a session."""

    @property
    def listener_method(self) -> Origin:
        """How its listener is called."""

    @property
    def queries(self) -> Queries:
        """Who runs there."""

    @property
    def listener(self) -> Listener | None:
        """Once it listens: what has to be watched, if anything."""

    def is_same(self, spark: Any) -> bool:
        """Whether `spark` stands for this session."""

    def listen(self, hand_over: HandOver, on_error: OnError) -> None:
        """Register a listener; `hand_over` must not block. Raises NoListener where there can be
        none. Blocks as long as Spark takes."""

    def leave(self, timeout_s: float) -> None:
        """Unregister, if it listens. Blocks as long as Spark takes. Raises nothing."""
