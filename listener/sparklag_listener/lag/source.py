"""Where a handle reads lag: the embedded service, a service's REST interface, or `consumer-lag`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Protocol, TypeVar

from sparklag_listener.background_loop import run_on_own_loop
from sparklag_listener.errors import AmbiguousQueryName, LagUnavailable, QueryNotFound
from sparklag_schemas import LagEvent
from sparklag_schemas.printable import printable
from sparklag_schemas.query_names import ambiguity

_Result = TypeVar("_Result")


class LagSource(Protocol):
    """Both calls block, for at most `timeout_s`. They raise LagUnavailable."""

    def find(self, query: str, timeout_s: float) -> LagEvent:
        """The newest event of a query, by name, id or the first characters of the id.

        Raises QueryNotFound, AmbiguousQueryName.
        """

    def newest(self, query_ids: Collection[str], timeout_s: float) -> list[LagEvent]:
        """The newest event of each of these queries that has one."""


class EmbeddedService(Protocol):
    """The service in this process. Its calls wait until its view is read."""

    async def find(self, query: str) -> list[LagEvent]:
        """The query that is meant; several where that is ambiguous."""

    async def newest(self, query_ids: Collection[str]) -> list[LagEvent]:
        """See LagSource."""

    def not_ready(self) -> str:
        """Why it waits."""


class EmbeddedSource:
    """Reads the view of the embedded service, on the loop that it runs on."""

    def __init__(
        self,
        service: EmbeddedService,
        submit: Callable[[Coroutine[Any, Any, list[LagEvent]]], Future[list[LagEvent]]],
    ) -> None:
        """`submit` runs a coroutine on that loop."""
        self._service = service
        self._submit = submit

    def find(self, query: str, timeout_s: float) -> LagEvent:
        """See LagSource."""
        return the_one(query, self._result(self._service.find(query), timeout_s))

    def newest(self, query_ids: Collection[str], timeout_s: float) -> list[LagEvent]:
        """See LagSource."""
        return self._result(self._service.newest(query_ids), timeout_s)

    def _result(
        self, events: Coroutine[Any, Any, list[LagEvent]], timeout_s: float
    ) -> list[LagEvent]:
        future = None
        try:
            future = self._submit(events)
            return future.result(timeout_s)
        except FutureTimeoutError:
            reason = f"not ready within {timeout_s:g} s: {self._service.not_ready()}"
        except (RuntimeError, CancelledError):
            # The loop is stopped.
            reason = "closed"
        finally:
            if future is not None:
                future.cancel()
        raise LagUnavailable(f"the embedded service is {reason}")


def await_within(timeout_s: float, coroutine: Coroutine[Any, Any, _Result], what: str) -> _Result:
    """Its result, from a loop of its own: the handle's loop is not held up.

    Raises LagUnavailable where `what` does not answer in time.
    """
    try:
        return run_on_own_loop(coroutine, timeout_s)
    except FutureTimeoutError:
        raise LagUnavailable(f"{what} did not answer within {timeout_s:g} s") from None


def the_one(query: str, events: Collection[LagEvent]) -> LagEvent:
    """The only one of `events`, which `query` means. Raises QueryNotFound, AmbiguousQueryName."""
    if len(events) > 1:
        ids = ", ".join(event.query_id for event in events)
        raise AmbiguousQueryName(printable(f"{ambiguity(query, events)}: {ids}", 1_000))
    for event in events:
        return event
    raise not_found(query)


def not_found(query: str) -> QueryNotFound:
    """The error where no query is meant."""
    shown = printable(repr(query), 200)
    return QueryNotFound(
        f"no query has the name or id {shown}, or its lag is not published yet;"
        " lags() has those that this handle observes"
    )
