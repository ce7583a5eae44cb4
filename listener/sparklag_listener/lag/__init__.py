"""The sources of a handle's lag: the embedded service, a service by REST, or `consumer-lag`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from sparklag_listener.background_loop import run_on_own_loop
from sparklag_listener.errors import (
    AmbiguousQueryName,
    LagUnavailable,
    ListenerError,
    QueryNotFound,
)
from sparklag_listener.stats import Stats
from sparklag_schemas import LagEvent, Observation, ResolvedSettings
from sparklag_schemas.messages.query_names import ambiguity
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.text.printable import printable

_Result = TypeVar("_Result")

LAG_TIMEOUT_S: Final = 10.0


class LagSource(Protocol):
    """Each call blocks, for at most `timeout_s`. Raises LagUnavailable."""

    def find(self, query: str, timeout_s: float) -> LagEvent:
        """The newest event of a query, by name, id or the first characters of the id.

        Raises QueryNotFound, AmbiguousQueryName.
        """

    def newest(self, query_ids: Collection[str], timeout_s: float) -> list[LagEvent]:
        """The newest event of each of these queries that has one."""


class EmbeddedService(Protocol):
    """The service in this process."""

    def run(
        self, queue: NewestQueue[Observation], settings: ResolvedSettings, stats: Stats
    ) -> Awaitable[None]:
        """Run on the driver's queue until cancelled."""

    async def find(self, query: str) -> list[LagEvent]:
        """The event of the query; several if `query` is ambiguous. Waits for the view."""

    async def newest(self, query_ids: Collection[str]) -> list[LagEvent]:
        """See LagSource. Waits for the service's view."""

    def not_ready(self) -> str:
        """Why the view is not ready."""


@dataclass(eq=False, repr=False)
class EmbeddedSource:
    """A LagSource: the view of the embedded service, on the loop that it runs on."""

    _service: EmbeddedService
    _submit: Callable[[Coroutine[Any, Any, list[LagEvent]]], Future[list[LagEvent]]]
    """Runs a coroutine on that loop."""

    def find(self, query: str, timeout_s: float) -> LagEvent:
        return the_one(query, self._result(self._service.find(query), timeout_s))

    def newest(self, query_ids: Collection[str], timeout_s: float) -> list[LagEvent]:
        return self._result(self._service.newest(query_ids), timeout_s)

    def _result(
        self, events: Coroutine[Any, Any, list[LagEvent]], timeout_s: float
    ) -> list[LagEvent]:
        try:
            future = self._submit(events)
        except RuntimeError:
            raise LagUnavailable("the embedded service is closed") from None
        try:
            return future.result(timeout_s)
        except CancelledError:
            raise LagUnavailable("the embedded service is closed") from None
        except FutureTimeoutError:
            reason = self._service.not_ready()
            raise LagUnavailable(
                f"the embedded service is not ready within {timeout_s:g} s: {reason}"
            ) from None
        finally:
            future.cancel()


def require_name(query: object) -> None:
    """Raise ListenerError where `query` cannot be the name or id of a query."""
    try:
        if isinstance(query, str) and query.encode():
            return
    except UnicodeEncodeError:
        # Half of a surrogate pair.
        pass
    raise ListenerError("lag() takes the name or id of a query, as text")


def await_within(timeout_s: float, coroutine: Coroutine[Any, Any, _Result], what: str) -> _Result:
    """The result of `coroutine`, run on a new loop: the handle's loop is not blocked.

    Raises LagUnavailable where `what` does not respond in time.
    """
    try:
        return run_on_own_loop(coroutine, timeout_s)
    except FutureTimeoutError:
        raise LagUnavailable(f"{what} did not answer within {timeout_s:g} s") from None


def the_one(query: str, events: Collection[LagEvent]) -> LagEvent:
    """The only one of `events`, which `query` means. Raises QueryNotFound, AmbiguousQueryName."""
    if not events:
        raise not_found(query)
    if len(events) > 1:
        ids = ", ".join(event.query_id for event in events)
        raise AmbiguousQueryName(printable(f"{ambiguity(query, events)}: {ids}", 1_000))
    return next(iter(events))


def not_found(query: str, alike: Sequence[str] = ()) -> QueryNotFound:
    """The error where no query matches `query`, and the names of queries that are alike."""
    lead = printable(
        f"alike: {', '.join(alike)}" if alike else "lags() of a handle lists its own", 700
    )
    shown = printable(repr(query), 200)
    return QueryNotFound(
        f"no query has the name or id {shown}, or its lag is not published yet; {lead}"
    )
