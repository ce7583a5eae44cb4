"""A classic Spark session, whose JVM is this driver's."""

from __future__ import annotations

import re
from typing import Any

from py4j.protocol import Py4JError

from sparklag_listener.classic.py4j_listener import Py4jListener
from sparklag_listener.classic.session_queries import SessionQueries
from sparklag_listener.classic.spark_session import add_listener, is_same_session, remove_listener
from sparklag_listener.errors import (
    NoListener,
    SessionStopped,
    UnsupportedSession,
    UnsupportedSpark,
)
from sparklag_listener.observed_session import HandOver, OnError
from sparklag_schemas import Origin

_OLDEST_SPARK = (3, 3)
_OLDEST_WITH_LISTENER = (3, 4)


class JvmSession:
    """See ObservedSession."""

    listener_method: Origin = "listener"
    listener = None
    """Spark does not forget one."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._wrapper: Any = None
        self.queries = SessionQueries(spark)

    def is_same(self, spark: Any) -> bool:
        """Whether `spark` stands for the same session of the JVM."""
        return is_same_session(spark, self._spark)

    def listen(self, hand_over: HandOver, on_error: OnError) -> None:
        """Register a listener. Raises NoListener where there can be none."""
        if _version(self._spark) < _OLDEST_WITH_LISTENER:
            raise NoListener(f"listeners need Spark 3.4 or newer, this is {self._spark.version}")
        listener = Py4jListener(self._spark._jvm, hand_over, on_error)
        self._wrapper = add_listener(self._spark, listener)

    def leave(self, timeout_s: float) -> None:
        """Unregister, once Spark has handed over what there is. Raises nothing."""
        if self._wrapper is None:
            return
        # In this order: a query's last events may still be on their way to the listener.
        self.queries.await_events(timeout_s)
        remove_listener(self._spark, self._wrapper)


def require_jvm_session(spark: Any) -> None:
    """Raise the error that says why `spark` cannot be observed, if it cannot."""
    session = getattr(spark, "_jsparkSession", None)
    if session is None or spark._jvm is None:
        raise UnsupportedSession(
            f"observe() takes a SparkSession, got {type(spark).__module__}.{type(spark).__name__}"
        )
    try:
        stopped = session.sparkContext().isStopped()
    except (Py4JError, OSError, AttributeError):
        stopped = True
    if stopped:
        raise SessionStopped("observe() was called on a Spark session that is stopped")
    if _version(spark) < _OLDEST_SPARK:
        raise UnsupportedSpark(f"observe() needs Spark 3.3 or newer, this is {spark.version}")


def _version(spark: Any) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", spark.version)[:2])
