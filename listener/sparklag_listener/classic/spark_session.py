"""What is asked of the Spark session through Py4J, apart from the events themselves.

Each answer is a value, but for the listener's wrapper.
"""

from __future__ import annotations

import re
import socket
from typing import Any

import msgspec
from py4j.protocol import Py4JError, Py4JJavaError

from sparklag_listener.classic.py4j_listener import Py4jListener
from sparklag_listener.errors import NoListener
from sparklag_listener.events.kafka_source import KafkaSource, QueryDescription
from sparklag_schemas.codec import NOT_JSON
from sparklag_schemas.redaction import redact, redact_location


def is_same_session(spark: Any, other: Any) -> bool:
    """Whether both stand for one session of the JVM, as `SparkSession.getActiveSession()` does."""
    if spark is other:
        return True
    try:
        return bool(spark._jsparkSession.equals(other._jsparkSession))
    except (Py4JError, OSError, AttributeError):
        return False


def add_listener(spark: Any, listener: Py4jListener) -> Any:
    """Register with the session. The answer is what `remove_listener` takes.

    Raises NoListener where Spark does not take it, or there is no port for its callbacks.
    """
    from pyspark.java_gateway import ensure_callback_server_started

    gateway = spark.sparkContext._gateway
    try:
        _require_callback_port(gateway)
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]  # pyspark's
        streaming = spark._jvm.org.apache.spark.sql.streaming
        wrapper = streaming.PythonStreamingQueryListenerWrapper(listener)
        spark._jsparkSession.streams().addListener(wrapper)
    except (Py4JError, OSError, TypeError) as error:
        # TypeError: what Py4J takes for a package where there is no such class.
        raise NoListener(f"Spark does not take a listener: {brief(error)}") from error
    return wrapper


def _require_callback_port(gateway: Any) -> None:
    """Raise OSError where Spark's callbacks cannot be listened for.

    Py4J would find that out too, and then shut down the whole gateway, the driver's Spark with it.
    """
    if gateway.__dict__.get("_callback_server") is not None:
        return
    address = gateway.callback_server_parameters.address
    family = socket.getaddrinfo(address, 0)[0][0]
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.bind((address, 0))


def await_events(context: Any, timeout_s: float) -> bool | None:
    """Wait until Spark has handed over every event there is, for at most `timeout_s` seconds.

    A query's end is known to who awaits it before its last events have reached the listener.
    Whether all are handed over; None where this Spark cannot tell: it is no public method.
    `context` is Java's.
    """
    try:
        if not context.isStopped():
            context.listenerBus().waitUntilEmpty(int(timeout_s * 1000))
        return True
    except Py4JJavaError:
        # Too many, or one that takes too long.
        return False
    except (Py4JError, OSError, AttributeError, TypeError):
        # A JVM that is gone, or a Spark with other internals.
        return None


def remove_listener(spark: Any, wrapper: Any) -> None:
    """Unregister. A session or JVM that is already gone is fine."""
    try:
        spark._jsparkSession.streams().removeListener(wrapper)
    except (Py4JError, OSError, AttributeError, TypeError):
        # AttributeError: pyspark's own state after stop().
        return


def brief(error: BaseException) -> str:
    """The error without Java's stack frames: what Py4J says, and what Java says."""
    told = [line.strip(": ") for line in str(error).splitlines()[:2]]
    return redact(": ".join(line for line in told if line)) or type(error).__name__


def describe(query: Any) -> QueryDescription:
    """Kafka sources and checkpoint of Java's `query`; empty where Spark does not say."""
    try:
        return describe_execution(query.streamingQuery())
    except (Py4JError, OSError, AttributeError, TypeError):
        # Another kind of query, or one that is stopping.
        return QueryDescription()


def describe_execution(execution: Any) -> QueryDescription:
    """The same of what a query wraps."""
    try:
        checkpoint = redact_location(str(execution.resolvedCheckpointRoot()))
        return QueryDescription(_kafka_sources(execution), checkpoint)
    except (Py4JError, OSError, AttributeError, TypeError):
        # A Spark with other internals, or one that is stopping.
        return QueryDescription()


def _kafka_sources(execution: Any) -> tuple[KafkaSource, ...]:
    leaves = execution.analyzedPlan().collectLeaves()
    found = []
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        if leaf.nodeName() not in ("StreamingRelationV2", "StreamingRelation"):
            continue
        if leaf.sourceName() != "kafka":
            continue
        options = leaf.extraOptions().asCaseSensitiveMap()
        found.append(_kafka_source(index, options))
    return tuple(found)


def _kafka_source(index: int, options: Any) -> KafkaSource:
    # Option names are case-insensitive, values are not. Only these are taken.
    wanted = {"subscribe", "subscribepattern", "assign"}
    wanted |= {"kafka.bootstrap.servers", "kafka.isolation.level"}
    taken = {
        name.lower(): str(options.get(name))
        for name in (str(key) for key in options.keySet())
        if name.lower() in wanted
    }
    topics: tuple[str, ...] | None = None
    if "subscribe" in taken:
        topics = tuple(topic.strip() for topic in taken["subscribe"].split(",") if topic.strip())
    elif "assign" in taken:
        topics = tuple(sorted(set(re.findall(r'"([^"]+)"\s*:\s*\[', taken["assign"]))))
    return KafkaSource(
        index=index,
        topics=topics,
        topic_pattern=taken.get("subscribepattern"),
        bootstrap_servers=taken.get("kafka.bootstrap.servers"),
        isolation_level=(
            "read_committed"
            if taken.get("kafka.isolation.level", "").lower() == "read_committed"
            else "read_uncommitted"
        ),
        assigned=_assigned(taken["assign"]) if "assign" in taken else None,
    )


def _assigned(text: str) -> dict[str, list[int]] | None:
    try:
        return msgspec.json.decode(text, type=dict[str, list[int]])
    except NOT_JSON:
        # Spark reads it otherwise, or not at all: then the query ends, and says why.
        return None
