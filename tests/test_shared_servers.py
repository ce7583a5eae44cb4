"""Shared servers: one for all processes of a run, and gone with the run."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.child_processes import Startable
from tests.databases.postgresql import PostgreSQLServer
from tests.processes import processes_naming
from tests.shared_servers import SharedServers
from tests.waiting import wait_for

pytestmark = pytest.mark.packaging

_ASK = """
import sys
from pathlib import Path
from tests.child_processes import Startable
from tests.databases.postgresql import PostgreSQLServer
from tests.shared_servers import SharedServers
servers = SharedServers(Path(sys.argv[1]) if sys.argv[1:] else None)
server = servers.get(PostgreSQLServer)
server.connect().close()
print(servers.folder, server.folder, server.port, flush=True)
sys.stdin.read()
"""


def _asking(stack: ExitStack, *folder: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _ASK, *folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    stack.enter_context(process)
    stack.callback(process.kill)
    return process


def _output_of(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


def test_processes_of_a_run_share_a_server_that_ends_with_a_killed_controller() -> None:
    with ExitStack() as stack:
        controller = _asking(stack)
        folder, data, port = _output_of(controller)
        workers = [_asking(stack, folder) for _ in range(2)]
        assert [_output_of(worker) for worker in workers] == [[folder, data, port]] * 2

        controller.send_signal(signal.SIGKILL)

        wait_for(lambda: not Path(folder).exists(), "the holder has ended")
        assert not Path(data).exists()
        assert not processes_naming(data)


def test_workers_that_ask_at_once_start_one() -> None:
    servers = SharedServers()
    with ExitStack() as stack:
        stack.callback(servers.close)
        # It ends with the process that requested it, and the server does not.
        workers = [_asking(stack, str(servers.folder)) for _ in range(2)]
        first, second = map(_output_of, workers)
        assert first == second
        for worker in workers:
            worker.communicate("")
        with servers.get(PostgreSQLServer).connect() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    assert not servers.folder.exists()
    assert not processes_naming(first[1])


class Failing(Startable):
    def start(self) -> None:
        raise ZeroDivisionError("it cannot be started")

    def close(self) -> None:
        return


def test_a_failed_start_fails_each_test_that_asks() -> None:
    servers = SharedServers()
    try:
        for _ in range(2):
            with pytest.raises(pytest.fail.Exception, match="it cannot be started"):
                servers.get(Failing)
        assert len(servers._holders) == 1, "it is not tried again"
    finally:
        servers.close()


def test_a_test_may_not_stop_the_server_of_a_run(postgresql: PostgreSQLServer) -> None:
    for forbidden in (postgresql.stop, postgresql.kill, postgresql.freeze, postgresql.start):
        with pytest.raises(AssertionError, match="start another one"):
            forbidden()
