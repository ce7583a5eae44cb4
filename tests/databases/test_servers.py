"""The database servers of the tests leave nothing behind."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from tests.databases.mariadb import MariaDBServer
from tests.databases.mongo_protocol import MongoProtocolServer
from tests.databases.postgresql import PostgreSQLServer, remove_shared_memory
from tests.databases.server import DatabaseServer
from tests.processes import process_is_gone
from tests.scripts import running_script
from tests.waiting import wait_for

pytestmark = pytest.mark.packaging

OWNER = """
import time
from tests.databases.postgresql import PostgreSQLServer
with PostgreSQLServer() as server:
    print(server.pid, server.folder, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize(
    "kind", [PostgreSQLServer, MariaDBServer, MongoProtocolServer], ids=lambda kind: kind.scheme
)
def test_nothing_is_left_after_a_failure(kind: type[DatabaseServer]) -> None:
    with suppress(ZeroDivisionError), kind() as server:
        pid, folder = server.pid, server.folder
        raise ZeroDivisionError
    assert process_is_gone(pid)
    assert not folder.exists()


def test_postgresql_as_another_user_ends_with_the_process_that_started_it() -> None:
    with running_script(OWNER) as (_, line):
        pid, _, folder = line.partition(" ")
    try:
        wait_for(lambda: process_is_gone(int(pid)), "PostgreSQL is gone")
    finally:
        remove_shared_memory(Path(folder) / "data")
        shutil.rmtree(folder)
