"""The sessions that can be observed, and the error of each of the others."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from sparklag_listener import (
    ListenerError,
    NoListener,
    SessionStopped,
    UnsupportedSession,
    UnsupportedSpark,
    observe,
)
from sparklag_listener.classic.listener import brief
from sparklag_listener.classic.query_description import _kafka_source
from sparklag_listener.classic.session import ClassicSession, JvmShutdown, require_classic_session
from sparklag_listener.events.kafka_source import reads
from sparklag_schemas import SettingsError, SourcePosition
from tests.listener.fakes import (
    FailingEvent,
    FakeConfiguration,
    FakeContext,
    FakeJavaSession,
    FakeMap,
    FakeSession,
    connect_session,
)


class GoneJavaSession:
    def sparkContext(self) -> Any:  # noqa: N802 - Java's name
        raise ConnectionRefusedError("Connection refused")


def without_jvm(text: str) -> Any:
    session = type("SparkSession", (FailingEvent,), {"version": "4.0.0"})
    return session(lambda: AttributeError(text))


def refusing(text: str) -> FakeSession:
    return FakeSession(_jsparkSession=FailingEvent(lambda: Py4JError(text)))


REFUSED: list[tuple[Any, type[ListenerError], str]] = [
    (connect_session(stopped=True), SessionStopped, "Connect session that is stopped"),
    ("spark", UnsupportedSession, "takes a SparkSession, got builtins.str"),
    (None, UnsupportedSession, "takes a SparkSession, got builtins.NoneType"),
    (FakeSession(_jvm=None), UnsupportedSession, "takes a SparkSession"),
    (FakeSession(_jsparkSession=FakeJavaSession(FakeContext(stopped=True))), SessionStopped,
     "session that is stopped"),
    (FakeSession(_jsparkSession=GoneJavaSession()), SessionStopped, "session that is stopped"),
    (FakeSession(_jsparkSession=FailingEvent(lambda: Py4JNetworkError("gone"))), SessionStopped,
     "session that is stopped"),
    (refusing("Trace:\npy4j.security.Py4JSecurityException: Method public x() is not whitelisted on"
     " class y\n"), UnsupportedSession, "not whitelisted.*access mode dedicated.*checkpoints"),
    (refusing("Constructor public x() is not allowlisted."), UnsupportedSession,
     "not allowlisted.*access mode dedicated"),
    (without_jvm("[JVM_ATTRIBUTE_NOT_SUPPORTED] Attribute `_jvm` is not supported"),
     UnsupportedSession, "has no JVM.*NOT_SUPPORTED.*access mode dedicated"),
    (without_jvm("no attribute '_jvm'"), UnsupportedSession, "has no JVM.*access mode"),
    (FakeSession(version="3.2.4"), UnsupportedSpark, "Spark 3.3 or newer, this is 3.2.4"),
    (FakeSession(version="2.4.8"), UnsupportedSpark, "Spark 3.3 or newer, this is 2.4.8"),
]  # fmt: skip


@pytest.mark.parametrize(("spark", "error", "text"), REFUSED)
def test_an_unusable_session_is_refused(spark: Any, error: type[ListenerError], text: str) -> None:
    with pytest.raises(error, match=text) as raised:
        observe(spark)
    assert type(raised.value) is error
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("spark", "method", "text"),
    [
        (connect_session(), "listener", "needs a classic Spark session.*'connect' or 'poll'"),
        (FakeSession(), "connect", "needs a Spark Connect session.*'listener' or 'poll'"),
        (FakeSession(), "push", "method='push'.: method takes 'listener', 'connect', 'poll'"),
        (connect_session(), "", "method=''.: method takes"),
    ],
)
def test_a_method_for_another_session_is_refused(spark: Any, method: Any, text: str) -> None:
    with pytest.raises(ListenerError, match=text) as raised:
        observe(spark, "broker:9092", method=method)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "version", ["3.3.0", "3.4.0", "3.5.7", "4.0.0", "4.2.0", "10.0.1", "4.1.0-SNAPSHOT"]
)
def test_spark_from_3_3_on_is_taken(version: str) -> None:
    require_classic_session(FakeSession(version=version))


def test_before_spark_3_4_there_is_no_listener() -> None:
    session = ClassicSession(FakeSession(version="3.3.4"))
    with pytest.raises(NoListener, match="listeners need Spark 3"):
        session.listen(lambda event: None, lambda error: None)


def test_a_wrong_setting_is_named_before_anything_is_registered() -> None:
    with pytest.raises(SettingsError, match="queue_size"):
        observe(FakeSession(), queue_size=0)
    with pytest.raises(SettingsError, match="bootstrap_server, did you mean bootstrap_servers"):
        observe(FakeSession(), bootstrap_server="broker:9092")
    with pytest.raises(SettingsError, match="http_auth = 'none'"):
        observe(FakeSession(), embedded=True, http_host="0.0.0.0")


def test_the_settings_in_sparks_configuration_are_those_with_the_prefix() -> None:
    properties = {
        "spark.app.name": "a -> b",
        "spark.sparklag.httpPort": "9",
        "spark.sparklag.storeUrl": "x -> y",
        "spark.sparklagger": "no",
    }
    session = FakeJavaSession(configuration=FakeConfiguration(properties))
    configuration = ClassicSession(FakeSession(_jsparkSession=session)).configuration()
    assert configuration == {"httpPort": "9", "storeUrl": "x -> y"}


def test_a_hidden_spark_configuration_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    hidden: Any = FailingEvent(lambda: Py4JNetworkError("not allowed"))
    session = FakeSession(_jsparkSession=FakeJavaSession(configuration=hidden))
    assert ClassicSession(session).configuration() == {}
    assert "Spark's configuration cannot be read: not allowed" in caplog.text


@pytest.mark.parametrize(
    ("source", "topics", "is_read"),
    [
        (SourcePosition(source=0, topics=["a", "b"]), {"a"}, True),
        (SourcePosition(source=0, topics=["a", "b"]), set(), True),
        (SourcePosition(source=0, topics=["a", "b"]), {"a", "c"}, False),
        (SourcePosition(source=0, topic_pattern="a.*"), {"a", "ab"}, True),
        (SourcePosition(source=0, topic_pattern="^a"), {"ba"}, False),
        # Spark looks for the pattern anywhere in the name.
        (SourcePosition(source=0, topic_pattern="a"), {"a", "bar"}, True),
        (SourcePosition(source=0), {"a"}, False),
    ],
)
def test_a_source_knows_its_topics(source: SourcePosition, topics: set[str], is_read: bool) -> None:
    assert reads(source, topics) is is_read


@pytest.mark.parametrize(
    ("assign", "assigned", "topics"),
    [
        ('{"a":[0,1],"b":[7]}', {"a": [0, 1], "b": [7]}, ["a", "b"]),
        (' { "a" : [ 2 ] } ', {"a": [2]}, ["a"]),
        ("{}", {}, []),
        ("", None, []),
        ('{"a":[0,1]', None, ["a"]),
        ('{"a":["0"]}', None, ["a"]),
        ('{"a":0}', None, []),
        ("[0]", None, []),
        ("\ud800", None, []),
    ],
)
def test_assigned_partitions_are_read_and_what_spark_would_refuse_is_not(
    assign: str, assigned: dict[str, list[int]] | None, topics: list[str]
) -> None:
    source = _kafka_source(0, FakeMap({"Assign": assign, "kafka.sasl.jaas.config": "S3CRET"}))
    assert source.assigned == assigned
    assert source.topics == topics
    assert "S3CRET" not in repr(source)


def test_an_error_of_the_jvm_is_reported_without_its_frames_and_secrets() -> None:
    error = ValueError(
        "An error occurred while calling o12.addListener.\n: java.lang.Error: password=S3CRET\n"
        "\tat org.apache.spark.Here(Here.scala:1)\n\tat There"
    )
    text = brief(error)
    assert "java.lang.Error" in text
    assert "S3CRET" not in text
    assert "\n" not in text
    assert "Here.scala" not in text


def test_an_error_without_words_is_reported_by_its_name() -> None:
    assert brief(TimeoutError()) == "TimeoutError"


@pytest.mark.parametrize(
    ("threads", "by_signal"),
    [
        ("[Thread[#31,main,5,main], Thread[#32,SIGTERM handler,9,system]]", True),
        ("[Thread[SIGINT handler,9,system]]", True),
        ("[Thread[Reference Handler,10,system], Thread[Thread-3,5,main]]", False),
        (Py4JNetworkError("gone"), False),
    ],
)
def test_a_jvm_that_exits_by_itself_is_not_ended_by_a_signal(
    threads: str | Exception, by_signal: bool
) -> None:
    jvm = MagicMock()
    listed = jvm.java.lang.Thread.getAllStackTraces.return_value.keySet.return_value
    listed.toString.side_effect = [threads]
    shutdown = JvmShutdown(jvm)
    shutdown.run()
    assert shutdown.by_signal == by_signal
