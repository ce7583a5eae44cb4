"""The database servers of the tests do what tests rely on."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymongo.errors import PyMongoError
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from tests.databases.clients import keep, kept, tables
from tests.databases.mariadb import MariaDBServer
from tests.databases.mongo_protocol import MongoProtocolServer
from tests.databases.postgresql import PostgreSQLServer, remove_shared_memory
from tests.databases.server import DatabaseServer
from tests.processes import process_is_gone
from tests.waiting import DEADLINE_S, wait_for

pytestmark = pytest.mark.packaging

SERVERS = [PostgreSQLServer, MariaDBServer, MongoProtocolServer]
OWNER = """
import sys, time
from tests.databases.{module} import {name}
with {name}() as server:
    print(server.pid, server.folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture(params=SERVERS, ids=lambda kind: kind.scheme)
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """One of its own, for a test to break."""
    with request.param() as server:
        yield server


@pytest.fixture(params=["postgresql", "mariadb", "mongo_protocol"])
def shared(request: pytest.FixtureRequest) -> DatabaseServer:
    """The one of the whole run."""
    server = request.getfixturevalue(request.param)
    assert isinstance(server, DatabaseServer)
    return server


def test_what_was_answered_is_kept_through_a_crash(server: DatabaseServer) -> None:
    url = server.new_database()
    answered: list[int] = []
    is_over = threading.Event()

    def write() -> None:
        while not is_over.is_set():
            number = len(answered)
            try:
                keep(url, number)
            except (SQLAlchemyError, PyMongoError):
                return
            answered.append(number)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        wait_for(lambda: len(answered) > 20, "some are written")
        server.kill()
        assert not server.is_ready()
    finally:
        is_over.set()

    server.start()
    writing.join(DEADLINE_S)

    # The one that was on its way may be there too.
    assert set(answered) <= set(kept(url)) <= {*answered, len(answered)}


def test_it_stops_and_starts_on_its_data(server: DatabaseServer) -> None:
    keep(server.url, 1)
    server.stop()
    server.stop()

    server.start()

    assert kept(server.url) == [1]


def test_one_that_another_thread_started_goes_on_after_the_thread(server: DatabaseServer) -> None:
    server.stop()

    starting = threading.Thread(target=server.start)
    starting.start()
    starting.join()

    with pytest.raises(AssertionError, match="still not: it ends"):
        wait_for(lambda: not server.is_ready(), "it ends", timeout_s=0.5)


def test_a_frozen_one_answers_when_it_is_let_go(server: DatabaseServer) -> None:
    keep(server.url, 1)
    answers: list[list[int]] = []
    asking = threading.Thread(target=lambda: answers.append(kept(server.url)))
    server.freeze()
    asking.start()
    asking.join(0.5)
    assert not answers

    server.thaw()
    asking.join(DEADLINE_S)

    assert answers == [[1]]


def test_a_frozen_one_can_be_killed(server: DatabaseServer) -> None:
    server.freeze()
    server.kill()

    server.start()

    assert server.is_ready()


def test_each_new_database_is_empty(shared: DatabaseServer) -> None:
    one, other = shared.new_database(), shared.new_database()
    keep(one, 1)

    assert tables(one) == ["kept"]
    assert tables(other) == []


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_wrong_password_is_refused(kind: str, request: pytest.FixtureRequest) -> None:
    server: DatabaseServer = request.getfixturevalue(kind)

    with pytest.raises(OperationalError, match=r"(?i)password"):
        tables(server.database_url(server.default_database, password="another"))


def test_postgresql_is_killed_with_what_it_does_for_others() -> None:
    with PostgreSQLServer() as server, server.connect() as connection:
        (asked,) = connection.execute("SELECT pg_backend_pid()").fetchone()
        connection.execute("SET statement_timeout = 0")
        sleeping = threading.Thread(target=_sleep_on, args=(connection,))
        sleeping.start()

        server.kill()

        assert process_is_gone(asked)
        sleeping.join(DEADLINE_S)
        assert not sleeping.is_alive()
        server.start()


@pytest.mark.parametrize("kind", SERVERS, ids=lambda kind: kind.scheme)
def test_nothing_is_left_after_a_failure(kind: type[DatabaseServer]) -> None:
    server = kind()

    def failing() -> None:
        with server:
            started.append((server.pid, server.folder))
            raise ZeroDivisionError

    started: list[tuple[int, Path]] = []
    with pytest.raises(ZeroDivisionError):
        failing()

    ((pid, folder),) = started
    assert process_is_gone(pid)
    assert not folder.exists()


@pytest.mark.parametrize("kind", SERVERS, ids=lambda kind: kind.scheme)
def test_it_ends_with_the_run_that_started_it(kind: type[DatabaseServer]) -> None:
    program = OWNER.format(module=kind.__module__.rpartition(".")[2], name=kind.__name__)
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as owner:
        try:
            assert owner.stdout is not None
            pid, _, folder = owner.stdout.readline().strip().partition(" ")
        finally:
            owner.send_signal(signal.SIGKILL)
    try:
        wait_for(lambda: process_is_gone(int(pid)), f"{kind.name} is gone")
    finally:
        remove_shared_memory(Path(folder) / "data")
        shutil.rmtree(folder)


def _sleep_on(connection: object) -> None:
    import psycopg

    assert isinstance(connection, psycopg.Connection)
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT pg_sleep(600)")
