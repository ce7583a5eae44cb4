"""A classic Spark session, whose JVM is this driver's."""

from __future__ import annotations

import logging
import re
import socket
from contextlib import suppress
from signal import SIGINT, SIGTERM
from typing import Any, ClassVar

from py4j.protocol import Py4JError

from sparklag_listener.background_loop import program_end
from sparklag_listener.classic.listener import (
    NOT_ALLOWED,
    UNAVAILABLE,
    Py4jListener,
    brief,
    text_listener,
)
from sparklag_listener.classic.queries import ClassicQueries
from sparklag_listener.errors import (
    NoListener,
    SessionStopped,
    UnsupportedSession,
    UnsupportedSpark,
)
from sparklag_listener.events.session import OnError, OnEvent, own_settings
from sparklag_schemas import DriverEnd, Origin

_log = logging.getLogger("sparklag")
_OLDEST_SPARK = (3, 3)
_OLDEST_WITH_LISTENER = (3, 4)
_BETWEEN = "\x1e"
_TERMINATED = {code for number in (SIGINT, SIGTERM) for code in (-number, 128 + number)}
"""The exit codes of a JVM that SIGINT or SIGTERM ended."""
_SIGNAL_HANDLER = re.compile("SIG(?:INT|TERM) handler")


class JvmShutdown:
    """What the JVM of `spark-submit` runs when it exits; not when it is killed."""

    by_signal = False
    """True: by SIGINT or SIGTERM, not by `System.exit`, as after too many failed executors."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm

    def run(self) -> None:
        """Java's Runnable. The thread that handles the signal waits for the end of this one."""
        with suppress(*UNAVAILABLE):
            threads = self._jvm.java.lang.Thread.getAllStackTraces().keySet().toString()
            self.by_signal = _SIGNAL_HANDLER.search(threads) is not None

    class Java:
        implements: ClassVar = ["java.lang.Runnable"]


class ClassicSession:
    """A session whose listener Spark does not drop. See ObservedSession."""

    listener_method: Origin = "listener"
    listener = None

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._wrapper: Any = None
        self._shutdown = JvmShutdown(spark._jvm)
        self.queries = ClassicQueries(spark)

    @property
    def label(self) -> str:
        context = self._spark.sparkContext
        return f"application {context.appName} ({context.applicationId})"

    def program_end(self) -> tuple[DriverEnd, str | None]:
        end, exception = program_end()
        jvm = _started_jvm(self._spark)
        code = jvm.poll() if jvm is not None else None
        if exception is not None and (self._shutdown.by_signal or code in _TERMINATED):
            return "interrupted", None
        if exception is not None and code is not None:
            exception = f"its JVM ended with exit code {code} ({exception})"
        return end, exception

    def is_same(self, spark: Any) -> bool:
        # `SparkSession.getActiveSession()` returns another Python object.
        try:
            return spark is self._spark or bool(
                spark._jsparkSession.equals(self._spark._jsparkSession)
            )
        except (Py4JError, OSError, AttributeError):
            return False

    def configuration(self) -> dict[str, str]:
        """The settings in Spark's configuration of this session, without their prefix."""
        # As one text: three requests to the JVM. A Java map would take two for each property.
        try:
            text = str(self._spark._jsparkSession.conf().getAll().mkString(_BETWEEN))
        except (Py4JError, OSError, TypeError) as error:
            # Platforms that share a JVM allow only some of its methods.
            _log.warning("sparklag: Spark's configuration cannot be read: %s", brief(error))
            return {}
        properties = (entry.partition(" -> ") for entry in text.split(_BETWEEN))
        return own_settings((name, value) for name, _, value in properties)

    def listen(self, on_event: OnEvent, on_error: OnError) -> None:
        if _version(self._spark) < _OLDEST_WITH_LISTENER:
            raise NoListener(f"listeners need Spark 3.4 or newer, this is {self._spark.version}")
        listener = Py4jListener(self._spark._jvm, on_event, on_error)
        self._wrapper = add_listener(self._spark, listener)
        if _started_jvm(self._spark) is None:
            with suppress(*UNAVAILABLE):
                lang = self._spark._jvm.java.lang
                lang.Runtime.getRuntime().addShutdownHook(lang.Thread(self._shutdown))

    def stop_listening(self, timeout_s: float) -> None:
        if self._wrapper is None:
            return
        # Before the removal: a query's last events may not have reached the listener yet.
        self.queries.await_events(timeout_s)
        # The session or the JVM may be gone, or stop() may have cleared pyspark's state.
        with suppress(*UNAVAILABLE):
            self._spark._jsparkSession.streams().removeListener(self._wrapper)


def _started_jvm(spark: Any) -> Any:
    """The JVM that PySpark started, as a Popen. None: below `spark-submit` the JVM is the parent of
    this process, and its exit code is not known."""
    return getattr(spark.sparkContext._gateway, "proc", None)


def require_classic_session(spark: Any) -> None:
    """Raise ListenerError where `spark` cannot be observed."""
    name = f"{type(spark).__module__}.{type(spark).__name__}"
    session: Any = None
    stopped = True
    try:
        session = spark._jsparkSession if spark._jvm is not None else None
        stopped = session.sparkContext().isStopped()
        # Some platforms have the JVM's session, and not this.
        spark.sparkContext.applicationId  # noqa: B018
    except (Py4JError, OSError, AttributeError) as error:
        if NOT_ALLOWED.search(str(error)) and hasattr(spark, "version"):
            raise UnsupportedSession(f"observe() has no JVM in {name}: {brief(error)}") from error
    if session is None:
        raise UnsupportedSession(f"observe() takes a SparkSession, got {name}")
    if stopped:
        raise SessionStopped("observe() was called on a Spark session that is stopped")
    if _version(spark) < _OLDEST_SPARK:
        raise UnsupportedSpark(f"observe() needs Spark 3.3 or newer, this is {spark.version}")


def add_listener(spark: Any, listener: Py4jListener) -> Any:
    """Register `listener` with the session. Returns its wrapper, for the removal.

    Raises NoListener where Spark does not accept it, or there is no port for its callbacks.
    """
    from pyspark.java_gateway import ensure_callback_server_started

    gateway = spark.sparkContext._gateway
    try:
        _require_callback_port(gateway)
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]  # pyspark's
        wrapper = wrapped(gateway, listener)
        spark._jsparkSession.streams().addListener(wrapper)
    except (Py4JError, OSError, TypeError) as error:
        # TypeError: Py4J takes a missing class for a package.
        raise NoListener(f"Spark does not take a listener: {brief(error)}") from error
    return wrapper


def wrapped(gateway: Any, listener: Py4jListener) -> Any:
    """Spark's StreamingQueryListener around `listener`."""
    wrapper = gateway.jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
    try:
        return wrapper(text_listener(gateway, listener))
    except (Py4JError, TypeError) as error:
        # This JVM or Spark does not allow a text listener: the progress is read by commands.
        _log.debug("sparklag: a progress is passed as an object: %s", brief(error))
        return wrapper(listener)


def _require_callback_port(gateway: Any) -> None:
    """Raise OSError where no port for callbacks can be bound.

    On this error Py4J itself would shut down the whole gateway, and with it the driver's Spark.
    """
    if gateway.__dict__.get("_callback_server") is not None:
        return
    address = gateway.callback_server_parameters.address
    family = socket.getaddrinfo(address, 0)[0][0]
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((address, 0))


def _version(spark: Any) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", spark.version)[:2])
