"""A Spark Connect session: its queries run on a server, and there is no JVM here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from functools import partial
from typing import Any

from sparklag_listener.connect.listener import ConnectListener
from sparklag_listener.connect.queries import ConnectClient, ConnectQueries
from sparklag_listener.errors import NoListener, ServerAway, SessionStopped
from sparklag_listener.events.session import OnError, OnEvent, SparkUnavailable, own_settings
from sparklag_schemas import Origin
from sparklag_schemas.runtime.daemon_threads import DaemonThreads
from sparklag_schemas.settings.reading import SPARK_PREFIX

# A server that is busy with other sessions takes long to open this one.
_ANSWER_TIMEOUT_S = 60.0


class ConnectSession:
    """See ObservedSession."""

    listener_method: Origin = "connect"
    ends_with_process = False

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._client = ConnectClient(spark)
        self.listener: ConnectListener | None = None
        self.queries = ConnectQueries(self._client)

    @property
    def label(self) -> str:
        return f"Spark Connect session {self._spark.session_id}"

    def is_same(self, spark: Any) -> bool:
        return spark is self._spark or (
            is_connect_session(spark) and spark.session_id == self._spark.session_id
        )

    def configuration(self) -> dict[str, str]:
        """The settings in the configuration of the session on the server, without their prefix.

        Blocks until the server answers. Raises ServerAway.
        """
        with _requests() as request:
            return own_settings(request(partial(self._client.properties, SPARK_PREFIX)).items())

    def listen(self, on_event: OnEvent, on_error: OnError) -> None:
        """Raises ServerAway too."""
        try:
            with _requests() as request:
                request(self.queries.list_active)
                self.listener = ConnectListener(self._spark, self._client, on_event, on_error)
                request(self.listener.register)
        except ServerAway:
            if self.listener is not None:
                # The registration may still succeed later.
                self.listener.close()
            raise

    def stop_listening(self, timeout_s: float) -> None:
        if self.listener is None:
            return
        try:
            self.listener.remove()
        except NoListener:
            # It stays registered, and is closed.
            return
        finally:
            self.listener.close()


@contextmanager
def _requests() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """What makes requests in a daemon thread, with one deadline for all. Raises ServerAway."""
    deadline_s = time.monotonic() + _ANSWER_TIMEOUT_S
    threads = DaemonThreads()

    def request(call: Callable[[], Any]) -> Any:
        return threads.submit(call).result(max(0.0, deadline_s - time.monotonic()))

    try:
        yield request
    except SparkUnavailable as error:
        raise ServerAway(f"the Spark Connect server does not answer: {error}") from error
    except FutureTimeoutError as error:
        raise ServerAway(
            f"the Spark Connect server does not answer within {_ANSWER_TIMEOUT_S:g} s"
        ) from error
    finally:
        threads.shutdown()


def is_connect_session(spark: Any) -> bool:
    """Whether it is one of PySpark's, of any version. Imports nothing."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def require_connect_session(spark: Any) -> None:
    """Raise ListenerError where `spark` cannot be observed."""
    if spark.is_stopped:
        raise SessionStopped("observe() was called on a Spark Connect session that is stopped")
