"""Servers that all processes of a test run share: each is started by the first test that needs it.

A server belongs to a holder, a process of its own: `python -m tests.shared_servers FOLDER KIND …`.
It outlives the worker that requested it, and ends with the run, even one that is killed: the
controller holds a lock for as long as it lives, which the kernel then releases.
"""

from __future__ import annotations

import fcntl
import pickle
import pkgutil
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar, cast

import pytest
from filelock import FileLock

from sparklag_jobs.broker.child_process import ChildProcess
from tests.child_processes import Startable
from tests.processes import process_is_gone
from tests.waiting import wait_for

_ROOT: Final = Path(__file__).parents[1]
_START_S: Final = 600.0
_STOP_S: Final = 120.0
_ADDRESS: Final = ("_ports", "_port", "_folder", "directory")
"""Attributes of servers that say where they are."""
_OWNERS: Final = ("start", "restart", "stop", "kill", "freeze", "thaw", "close")
"""Methods for the owner of a server."""

_S = TypeVar("_S", bound=Startable)


class SharedServers:
    """A pytest plugin of the controller and of each worker."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: the controller's, in a worker."""
        self._is_controller = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="sparklag-servers-"))
        self._holders: list[subprocess.Popen[bytes]] = []
        if self._is_controller:
            self._run = _run_lock(self.folder).open("w")
            fcntl.flock(self._run, fcntl.LOCK_EX)

    @classmethod
    def of(cls, config: pytest.Config) -> SharedServers:
        folder = getattr(config, "workerinput", {}).get("shared_servers")
        return cls(folder and Path(folder))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["shared_servers"] = str(self.folder)

    def pytest_unconfigure(self) -> None:
        self.close()

    def get(self, kind: type[_S], *arguments: str) -> _S:
        """The run's server of that kind. Fails the test where it cannot be started."""
        name = f"{kind.__module__}:{kind.__qualname__}"
        address = self.folder / f"{name}.address"
        with FileLock(self.folder / f"{name}.lock"):
            if not address.exists():
                self._start_holder(name, arguments, address)
        result = pickle.loads(address.read_bytes())
        if isinstance(result, str):
            pytest.fail(result, pytrace=False)
        return _attached(kind, result)

    def made(self, name: str, make: Callable[[Path], object]) -> Path:
        folder = self.folder / name
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                scratch = self.folder / f"{name}.new"
                scratch.mkdir(exist_ok=True)
                make(scratch)
                scratch.rename(folder)
        return folder

    def close(self) -> None:
        """End the servers, where this is the controller, and wait for their end. Idempotent."""
        if not self._is_controller or self._run.closed:
            return
        pids = [int(path.read_text()) for path in self.folder.glob("*.pid")]
        # Not only closed: a process that a test forked may have it too.
        fcntl.flock(self._run, fcntl.LOCK_UN)
        self._run.close()
        wait_for(lambda: all(map(process_is_gone, pids)), "the servers' holders end", _STOP_S)
        for holder in self._holders:
            holder.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start_holder(self, name: str, arguments: tuple[str, ...], address: Path) -> None:
        log_path = address.with_suffix(".log")
        with log_path.open("wb") as log:
            holder = subprocess.Popen(
                [sys.executable, "-m", "tests.shared_servers", self.folder, name, *arguments],
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        address.with_suffix(".pid").write_text(str(holder.pid))
        self._holders.append(holder)
        wait_for(lambda: address.exists() or holder.poll() is not None, f"{name} starts", _START_S)
        assert address.exists(), log_path.read_text()


def _run_lock(folder: Path) -> Path:
    return folder / "run.lock"


def _attached(kind: type[_S], address: Mapping[str, Any]) -> _S:
    """The server of another process: of its own class, without the methods for its owner."""
    attached = type(kind.__name__, (kind,), dict.fromkeys(_OWNERS, _refuse))
    server = cast("_S", object.__new__(attached))
    vars(server).update(address)
    return server


def _refuse(server: Startable, *_: object) -> NoReturn:
    kind = type(server).__name__
    raise AssertionError(f"the {kind} of the run is not this test's: start another one")


def hold(folder: Path, name: str, *arguments: str) -> None:
    """Start the server, write its address, or why there is none, and keep it until the run ends."""
    from tests.debian_packages import ProgramsMissing

    address = folder / f"{name}.address"
    with _run_lock(folder).open() as run, ExitStack() as stack:
        result: str | dict[str, Any]
        try:
            server: Startable = stack.enter_context(pkgutil.resolve_name(name)(*arguments))
        except Exception as failure:
            missing = isinstance(failure, ProgramsMissing)
            result = str(failure) if missing else traceback.format_exc()
        else:
            result = {key: vars(server)[key] for key in _ADDRESS if key in vars(server)}
            if isinstance(server, ChildProcess):
                # Stopped, a broker writes thousands of partitions to the disk.
                stack.callback(server.kill)
        _write(address, result)
        fcntl.flock(run, fcntl.LOCK_SH)
    shutil.rmtree(folder, ignore_errors=True)


def _write(address: Path, result: str | Mapping[str, Any]) -> None:
    """At once: whoever waits for the file reads all of it."""
    scratch = address.with_suffix(".new")
    scratch.write_bytes(pickle.dumps(result))
    scratch.rename(address)


if __name__ == "__main__":
    hold(Path(sys.argv[1]), *sys.argv[2:])
