"""A Spark Connect session: its queries run on a server, and no JVM is here."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from threading import Thread
from typing import Any, TypeVar

from sparklag_listener.connect.client import ConnectClient
from sparklag_listener.connect.listener import ConnectListener
from sparklag_listener.connect.queries import ConnectQueries
from sparklag_listener.errors import NoListener, ServerAway, SessionStopped
from sparklag_listener.events.queries import Unanswered
from sparklag_listener.observed_session import HandOver, OnError
from sparklag_schemas import Origin

Result = TypeVar("Result")

# A server with other sessions' work to do takes long to begin with this one's.
_ANSWER_TIMEOUT_S = 60.0


class ConnectSession:
    """See ObservedSession."""

    listener_method: Origin = "connect"

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._client = ConnectClient(spark)
        self.listener: ConnectListener | None = None
        self.queries = ConnectQueries(self._client)

    def is_same(self, spark: Any) -> bool:
        """Whether `spark` stands for the same session of the server."""
        return spark is self._spark or (
            is_connect_session(spark) and spark.session_id == self._spark.session_id
        )

    def listen(self, hand_over: HandOver, on_error: OnError) -> None:
        """Register a listener. Raises NoListener where there can be none, ServerAway."""
        within = _Within(_ANSWER_TIMEOUT_S)
        try:
            within.call(self.queries.look)
            listener = ConnectListener(self._spark, self._client, hand_over, on_error)
            self.listener = listener
            within.call(listener.register)
        except Unanswered as error:
            raise ServerAway(f"the Spark Connect server does not answer: {error}") from error
        except FutureTimeoutError as error:
            if self.listener is not None:
                # Should it be registered after all.
                self.listener.close()
            raise ServerAway(
                f"the Spark Connect server does not answer within {_ANSWER_TIMEOUT_S:g} s"
            ) from error

    def leave(self, timeout_s: float) -> None:
        """Unregister. Raises nothing."""
        if self.listener is None:
            return
        try:
            self.listener.remove()
        except NoListener:
            # It stays, and hands nothing over.
            return
        finally:
            self.listener.close()


class _Within:
    """Calls that block, in daemon threads, for so long altogether."""

    def __init__(self, timeout_s: float) -> None:
        self._deadline = time.monotonic() + timeout_s

    def call(self, call: Callable[[], Result]) -> Result:
        """Its answer. Raises what it raises, TimeoutError of `concurrent.futures`."""
        answer: Future[Result] = Future()

        def run() -> None:
            try:
                answer.set_result(call())
            except BaseException as error:
                answer.set_exception(error)

        Thread(target=run, name="sparklag-connect", daemon=True).start()
        return answer.result(max(0.0, self._deadline - time.monotonic()))


def is_connect_session(spark: Any) -> bool:
    """Whether it is one of PySpark's, of any version. Imports nothing."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def require_connect_session(spark: Any) -> None:
    """Raise the error that says why `spark` cannot be observed, if it cannot."""
    if spark.is_stopped:
        raise SessionStopped("observe() was called on a Spark Connect session that is stopped")
