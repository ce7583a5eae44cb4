"""`observe` on a real Spark Connect server, which drops its listener, is away, and is polled."""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql.connect.client.core import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.session import SparkSession
from sqlalchemy import create_engine

from sparklag_listener import (
    NoBrokers,
    ObserverHandle,
    ServerAway,
    SessionStopped,
    UnsupportedSession,
    keep_offsets,
    observe,
)
from sparklag_listener.connect import session as connect_session
from sparklag_listener.connect.queries import ConnectClient, ConnectQueries
from sparklag_listener.events.kafka_source import WHOLE_NAMES
from sparklag_listener.events.session import ConnectionLost, SparkUnavailable
from tests.end_to_end import answer
from tests.listener.conftest import Driver
from tests.listener.connect_server import ConnectServer
from tests.listener.drivers import read_kafka
from tests.listener.offsets_topic import causes, in_order
from tests.listener.queries_contract import assert_answers
from tests.logged import logged
from tests.second_client import SecondClient
from tests.sparklag.test_run import run_program
from tests.tcp_proxy import TcpProxy
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    # The client's own words where it forgets its listeners; as an error they would end its thread.
    pytest.mark.filterwarnings("default:StreamingQueryListenerBus Handler thread:UserWarning"),
    # Its own words where the server cannot end a session.
    pytest.mark.filterwarnings("default:The 'warn' method is deprecated:DeprecationWarning"),
]

_sessions: list[SparkSession] = []
"""Kept: one that is collected shuts the thread pool which PySpark's sessions share, in whichever
thread that is. Where it is just about to give the pool work, both wait for ever."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with ConnectServer(tmp_path_factory.mktemp("connect") / "server.log") as server:
        yield server


class Client(Driver):
    def __init__(
        self, server: ConnectServer, kafka: SecondClient, topic: str, folder: Path
    ) -> None:
        self.proxy = TcpProxy(server.port)
        # It waits long before it connects again, and tries for ten minutes.
        quick = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 200)]
        channel = DefaultChannelBuilder(f"sc://127.0.0.1:{self.proxy.port}", quick)
        session = SparkSession.builder.channelBuilder(channel).create()
        _sessions.append(session)
        session.client.set_retry_policies([DefaultPolicy(max_retries=2, initial_backoff=10)])
        super().__init__(session, kafka, kafka.create(topic, 2), folder)
        self.send()

    def observe(self, bootstrap_servers: str | None = None, **settings: Any) -> ObserverHandle:
        quick = {"heartbeat_s": 1.0, "refresh_interval_s": 0.2}
        return super().observe(bootstrap_servers or self.servers, **{**quick, **settings})

    def query(self, name: str = "orders", **options: str) -> Any:
        if "subscribePattern" not in options:
            options["subscribe"] = self.topic
        frame = read_kafka(self.spark, self.servers, **options).selectExpr(
            "IF(CAST(value AS STRING) = 'bad',"
            " raise_error('this batch breaks, password=S3CRET'), 1) AS good"
        )
        return self.start(name, name, frame)

    def await_event(self, handle: ObserverHandle, query: Any) -> None:
        """Send until a batch comes as an event: on a busy machine it may be polled before."""

        def comes_as_event() -> bool:
            recovered = handle.stats().recovered
            self.send()
            self.published.until(query.id, self.at_end(), "the new end of the topic")
            return handle.stats().recovered == recovered

        wait_for(comes_as_event, "a batch comes as an event")

    def close(self) -> None:
        self.proxy.restore()
        for handle in self._handles:
            handle.close()
        if not self.spark.is_stopped:
            wait_for(partial(answers, self.spark), "the server answers again")
            for query in self.spark.streams.active:
                query.stop()
            self.spark.stop()
        self.proxy.close()


@pytest.fixture
def client(
    server: ConnectServer, second_client: SecondClient, topic_name: str, tmp_path: Path
) -> Iterator[Client]:
    made = Client(server, second_client, topic_name, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("method", ["connect", pytest.param("poll", marks=pytest.mark.slow)])
def test_a_querys_whole_life_arrives_to_the_record(client: Client, method: Any) -> None:
    with pytest.raises(NoBrokers, match="needs bootstrap_servers"):
        observe(client.spark)
    client.spark.conf.set("spark.sparklag.cluster", "of the session")
    # Shorter than between two idle events: a query that reports so itself is not polled for it.
    handle = client.observe(method=None if method == "connect" else method, heartbeat_s=0.2)
    assert handle.method == method
    again = client.observe(method=None if method == "connect" else method, heartbeat_s=0.2)
    assert again is handle
    query = client.query()
    client.published.until(query.id, client.at_end(), "the end of the topic")
    client.send()
    client.published.until(query.id, client.at_end(), "the new end of the topic")
    client.published.await_cause(query.id, "refresh")
    query.stop()
    client.published.await_cause(query.id, "terminated")
    received = client.published.observations(query.id)
    assert causes(received)[-1] == "terminated"
    in_order(received)
    rows = [each.batch.rows for each in received if each.batch is not None]
    # Records sent while a batch is planned come in two batches; a poll returns the newer only.
    assert all(rows)
    assert 10 < sum(rows) <= 20
    for each in received:
        assert (each.query, each.run_id, each.origin) == ("orders", query.runId, method)
        assert each.cluster == "of the session"
        (source,) = each.sources
        assert source.topics == [client.topic]
        assert (each.exception, source.bootstrap_servers) == (None, None)
    stats = handle.stats()
    assert (stats.failed, stats.dropped, stats.reregistered) == (0, 0, 0), stats
    assert method == "connect" or stats.recovered == 0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["connect", "poll"])
def test_a_running_query_is_detected_and_reports_why_it_fails(client: Client, method: Any) -> None:
    client.spark.conf.set(WHOLE_NAMES, "TRUE")
    query = client.query(subscribePattern=client.topic)
    query.processAllAvailable()
    handle = client.observe(method=method)
    received = client.published.until(query.id, client.at_end(), "its position")
    assert {each.origin for each in received} == {method}
    (source,) = received[-1].sources
    assert (source.topics, source.topic_pattern) == (None, rf"\A(?:{client.topic})\z")
    client.client.produce(client.topic, [b"bad"])
    ended = client.published.await_cause(query.id, "terminated")
    assert "this batch breaks" in str(ended.exception)
    assert "S3CRET" not in client.published.all_text()
    assert sum((ended.sources[0].processed or {})[client.topic].values()) == 10
    assert handle.stats().failed == 0


@pytest.mark.slow
def test_dropped_listeners_are_restored(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "sparklag")
    handle = client.observe()
    query = client.query()
    client.published.until(query.id, client.at_end(), "the end of the topic")
    bus = client.spark.streams._sqlb
    (ours,) = bus._listener_bus
    client.proxy.cut()
    wait_for(lambda: bus._listener_bus == [], "the client drops its listeners")
    client.send()
    client.proxy.restore()
    wait_for(lambda: handle.stats().reregistered > 0, "it is registered again")
    assert bus._listener_bus == [ours]
    client.published.until(query.id, client.at_end(), "what was missed")
    client.await_event(handle, query)
    lines = logged(caplog)
    again = handle.stats().reregistered
    assert sum("registered again" in line for line in lines) == again, lines
    assert len(lines) <= 4 + again, lines


@pytest.mark.slow
def test_a_stream_of_events_that_ends_without_a_word_is_begun_anew(client: Client) -> None:
    handle = client.observe()
    query = client.query()
    client.published.until(query.id, client.at_end(), "the end of the topic")
    # As another client of the same session may do.
    own = ConnectClient(client.spark)
    command = own.command()
    command.streaming_query_listener_bus_command.remove_listener_bus_listener = True
    own.send(command)
    wait_for(lambda: handle.stats().reregistered > 0, "it is registered again")
    client.await_event(handle, query)


@pytest.mark.slow
def test_closing_the_last_listener_in_a_flood_of_events_blocks_nobody(client: Client) -> None:
    query = client.query(maxOffsetsPerTrigger="2")
    bus = client.spark.streams._sqlb
    for number in range(2):
        client.send()
        handle = client.observe()
        wait_for(partial(receives, handle), "events come")
        handle.close()
        wait_for(lambda: bus._listener_bus == [], "ours is gone")
        assert bus._execution_thread is None
        # It reports its start to every listener.
        client.query(f"another-{number}").stop()
    query.stop()


@pytest.mark.slow
@pytest.mark.parametrize("interrupt", [TcpProxy.cut, TcpProxy.freeze])
def test_with_the_server_away_the_log_is_quiet_and_closing_is_bounded(
    client: Client,
    interrupt: Callable[[TcpProxy], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "sparklag")
    handle = client.observe(heartbeat_s=0.2)
    poller = handle._pipeline.poller
    poll, polls = poller._poll, 0

    async def poll_and_count() -> bool:
        nonlocal polls
        polls += 1
        return await poll()

    monkeypatch.setattr(poller, "_poll", poll_and_count)
    query = client.query()
    client.published.until(query.id, client.at_end(), "the end of the topic")
    interrupt(client.proxy)
    failed = handle.stats().failed
    wait_for(lambda: handle.stats().failed > failed, "it is reported")
    before = polls
    wait_for(lambda: polls > before + 5, "it polls on")
    handle.close()
    handle.close()
    assert threading.active_count() < 100
    lines = logged(caplog)
    assert 1 <= len(lines) <= 4, lines
    assert not any("\n" in line or len(line) > 600 for line in lines), lines


@pytest.mark.slow
def test_a_silent_server_is_one_error(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.proxy.cut()
    with monkeypatch.context() as patched:
        patched.setattr(connect_session, "_ANSWER_TIMEOUT_S", 3.0)
        with pytest.raises(ServerAway, match="does not answer") as raised:
            client.observe()
    assert "\n" not in str(raised.value)
    client.proxy.restore()
    wait_for(lambda: answers(client.spark), "the server answers again")
    assert client.observe().method == "connect"


@pytest.mark.slow
def test_a_stopped_session_ends_queries(
    client: Client, server: ConnectServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "sparklag")
    handle = client.observe()
    query = client.query()
    client.published.until(query.id, client.at_end(), "the end of the topic")
    wait_for(lambda: handle.stats().published > 3, "Spark was polled")
    client.spark.stop()
    ended = client.published.await_cause(query.id, "terminated")
    assert ended.exception is None
    with pytest.raises(SessionStopped):
        observe(client.spark, "broker:9092")
    handle.close()
    handle.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # As the session does when it is collected.
        client.spark.streams.close()
    assert f"SessionId: {client.spark.session_id}" not in server.log_path.read_text()
    # A busy machine is polled before its events come.
    assert [line for line in logged(caplog) if "recovered by polling" not in line] == []


@pytest.mark.slow
def test_a_long_batch_is_reported_as_running(client: Client) -> None:
    client.observe(heartbeat_s=0.5)
    # Longer than the test takes: the query is stopped in it.
    sleep = "reflect('java.lang.Thread', 'sleep', IF(CAST(value AS STRING) = 'slow', 300000L, 0L))"
    frame = read_kafka(client.spark, client.servers, subscribe=client.topic).selectExpr(sleep)
    query = client.start(frame=frame)
    client.published.until(query.id, client.at_end(), "its first batch")
    client.client.produce(client.topic, [b"slow"])
    received = client.published.until(
        query.id, lambda received: received[-1].activity == "running", "it runs"
    )
    assert received[-1].cause == "refresh"
    query.stop()


@pytest.mark.slow
def test_what_a_server_answers_is_what_its_client_reports_of_the_queries(client: Client) -> None:
    queries = ConnectQueries(ConnectClient(client.spark))
    assert_answers(client.spark, queries, client.query)
    client.proxy.cut()
    with pytest.raises(SparkUnavailable) as raised:
        queries.list_active()
    assert not isinstance(raised.value, ConnectionLost)
    client.proxy.restore()
    wait_for(lambda: answers(client.spark), "the server answers again")
    client.spark.client.release_session()
    with pytest.raises(ConnectionLost):
        queries.list_active()
    client.spark.client.close()


@pytest.mark.slow
def test_an_idle_session_expires_and_the_next_one_is_observed(
    second_client: SecondClient, topic_name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "sparklag")
    manager = "spark.connect.session.manager"
    timeouts = (f"{manager}.defaultSessionTimeout=20s", f"{manager}.maintenanceInterval=1s")
    with ConnectServer(tmp_path / "server.log", properties=timeouts) as server:
        client = Client(server, second_client, topic_name, tmp_path)
        handle = client.observe(heartbeat_s=0.5)
        query = client.query()
        client.published.until(query.id, client.at_end(), "the end of the topic")
        query.stop()
        client.published.await_cause(query.id, "terminated")
        wait_for(lambda: server.sessions == 0, "it expires")
        with pytest.raises(SparkConnectGrpcException, match=r"INVALID_HANDLE\.SESSION_"):
            client.query("later")
        handle.close()
        client.proxy.close()
        anew = Client(server, second_client, f"{topic_name}-anew", tmp_path)
        anew.observe()
        again = anew.query("again")
        anew.published.until(again.id, anew.at_end(), "the end of the topic")
        anew.close()
    assert [line for line in logged(caplog) if "recovered by polling" not in line] == []


@pytest.mark.slow
@pytest.mark.parametrize("method", ["connect", "poll"])
def test_a_query_that_starts_in_an_idle_session_is_observed(client: Client, method: Any) -> None:
    handle = client.observe(method=method, heartbeat_s=0.3)
    assert "execute_command" in vars(client.spark.client)  # a start is seen from now on
    queries: Any = handle._session.queries
    for number in range(2):
        wait_for(lambda: queries._is_resting, "it makes no requests")
        wait_for(lambda: client.spark.streams._sqlb._listener_bus == [], "it has no listener")
        query = client.query(f"query-{number}")
        client.published.until(query.id, client.at_end(), "the end of the topic")
        query.stop()
        client.published.await_cause(query.id, "terminated")
    assert (handle.stats().failed, handle.stats().reregistered) == (0, 0)
    handle.close()
    assert "execute_command" not in vars(client.spark.client)


SCRIPT = """
import sys, sparklag
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(f"sc://127.0.0.1:{sys.argv[1]}").getOrCreate()
handle = sparklag.observe(spark, sys.argv[2], heartbeat_s=0.5)
query = spark.readStream.format("rate").load().writeStream.format("noop").start()
while handle.stats().ignored < 4:
    pass
"""


@pytest.mark.slow
def test_a_script_that_does_not_close_its_handle_prints_nothing(
    server: ConnectServer, second_client: SecondClient
) -> None:
    done = run_program(
        sys.executable, "-c", SCRIPT, str(server.port), second_client.bootstrap_servers
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def receives(handle: ObserverHandle) -> bool:
    return handle.stats().observed > 3


def answers(spark: SparkSession) -> bool:
    try:
        ConnectQueries(ConnectClient(spark)).list_active()
    except ConnectionLost:
        return True
    except SparkUnavailable:
        return False
    return True


@pytest.mark.slow
def test_embedded_it_answers_for_a_query_on_a_server(client: Client) -> None:
    handle = client.observe(embedded=True, http_port=0, lag_topic=f"{client.topic}-lag")
    query = client.query()
    wait_for(lambda: handle.stats().url is not None, "it serves")
    url = f"{handle.stats().url}/lag/{query.id}"
    wait_for(lambda: (answer(url) or {}).get("total_lag") == 0, "its lag")
    assert (answer(url) or {})["query"] == "orders"


@pytest.mark.slow
def test_a_batch_cannot_keep_its_offsets_here(client: Client) -> None:
    with (
        create_engine("sqlite://").begin() as transaction,
        pytest.raises(UnsupportedSession, match="needs a classic Spark session"),
    ):
        keep_offsets(transaction, client.spark.range(1), 0)
