"""What the database servers of the tests have in common."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import uuid
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from sparklag_jobs.broker.child_process import STOP_TIMEOUT_S, ChildProcess, free_port, log_end
from tests.child_processes import Startable, freeze, thaw
from tests.processes import descendants, process_is_gone, signal_all
from tests.waiting import wait_for, wait_until_up

HOST: Final = "127.0.0.1"
USER: Final = "sparklag"
PASSWORD: Final = "local@tests:p/w?#&+ %41"
"""Nothing of it may stand in a URL as it is, and `%41` shows whether it was unescaped twice."""

_START_S: Final = 120.0
_GONE_S: Final = 120.0
_PREPARE_S: Final = 120.0


class DatabaseServer(Startable):
    """Its data are gone with it.

    It listens on one port of 127.0.0.1 as long as it is kept, also after `kill` and `start`. What
    was acknowledged to a client outlives `kill`: nothing waits for the disk, and all is with the
    system by then.
    """

    name: str
    scheme: str
    default_database: str
    stop_signal = signal.SIGTERM

    def __init__(self) -> None:
        self._port = free_port()
        self._folder: Path | None = None
        self._process: ChildProcess | None = None
        self._is_frozen = False
        self._log_start = 0

    @property
    def port(self) -> int:
        return self._port

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def url(self) -> str:
        return self.database_url(self.default_database)

    def database_url(self, database: str, *, password: str = PASSWORD) -> str:
        who = f"{USER}:{quote(password, safe='')}"
        return f"{self.scheme}://{who}@{HOST}:{self._port}/{database}"

    def new_database(self) -> str:
        database = f"sparklag_{uuid.uuid4().hex[:12]}"
        self._create_database(database)
        return self.database_url(database)

    def start(self) -> None:
        """Start it, on the data it had, and return when it answers."""
        assert self._process is None or not self._process.is_alive(), f"{self.name} runs already"
        if self._process is None:
            self._prepare()
        log_path = self.folder / "server.log"
        self._log_start = len(log_path.read_text(errors="replace")) if log_path.exists() else 0
        self._process = ChildProcess(
            self.name,
            self._command(),
            log_path=log_path,
            environment=self._environment(),
            directory=self.folder,
        )
        self._process.start()
        self._after_start()
        wait_until_up([self._process], self._answers, _START_S)

    def stop(self) -> None:
        """Stop it, keeping its data, whoever is connected. Idempotent."""
        if self._process is None or not self._process.is_alive():
            return
        self.thaw()  # a frozen process sees no signal
        self._before_end()
        self._process.send_signal(self.stop_signal)
        if self._process.wait(STOP_TIMEOUT_S):
            self._process.stop()
        else:
            self.kill()

    def kill(self) -> None:
        """End it and all it started at once, as a crash would (SIGKILL). Its data stay."""
        if self._process is None or not self._process.is_alive():
            return
        self._before_end()
        # Frozen it starts nothing that would be missed.
        freeze(self._process)
        started = descendants(self._process.pid)
        self._process.kill()
        self._is_frozen = False
        signal_all(started, signal.SIGKILL)
        wait_for(lambda: all(map(process_is_gone, started)), f"{self.name} is gone", _GONE_S)

    def freeze(self) -> None:
        """Hold it: connections stay open, and nothing is answered until `thaw`."""
        assert self._process is not None
        self._is_frozen = True
        freeze(self._process)
        signal_all(descendants(self._process.pid), signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        signal_all(descendants(self._process.pid), signal.SIGCONT)
        thaw(self._process)
        self._is_frozen = False

    def is_ready(self) -> bool:
        return self._process is not None and self._process.is_alive() and self._answers()

    def close(self) -> None:
        """Stop it and remove its data. Idempotent."""
        try:
            self.stop()
        finally:
            self._release()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def folder(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix=f"sparklag-{self.scheme}-"))
        return self._folder

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @abstractmethod
    def _prepare(self) -> None:
        """Once, before the first start."""

    @abstractmethod
    def _command(self) -> Sequence[str]: ...

    @abstractmethod
    def _answers(self) -> bool: ...

    @abstractmethod
    def _create_database(self, database: str) -> None: ...

    def _environment(self) -> Mapping[str, str] | None:
        return None

    def _after_start(self) -> None:
        """What it takes, besides the process, until it can answer."""

    def _before_end(self) -> None:
        """What has to be done before the process is ended."""

    def _release(self) -> None:
        """What outlives the process and is not in its folder."""


class SqlServer(DatabaseServer):
    driver: str
    """The module of a plain driver, by PEP 249."""

    def connect(self, database: str = "", *, password: str = PASSWORD) -> Any:
        access = {"host": HOST, "port": self.port, "user": USER, "password": password}
        options = {"connect_timeout": 10, "autocommit": True, **self._options(database)}
        return import_module(self.driver).connect(**access, **options)

    @abstractmethod
    def _options(self, database: str) -> dict[str, Any]:
        """More arguments of `connect`."""

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except import_module(self.driver).OperationalError:
            return False
        return True

    def _create_database(self, database: str) -> None:
        with closing(self.connect()) as connection:
            connection.cursor().execute(f"CREATE DATABASE {database}")

    def _prepare_by(self, command: Sequence[str], stdin: str = "") -> None:
        """Run what makes its data; `stdin` is its input."""
        log_path = self.folder / "prepare.log"
        with log_path.open("wb") as log:
            done = subprocess.run(
                command,
                input=stdin.encode(),
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(),
                cwd=self.folder,
                timeout=_PREPARE_S,
                check=False,
            )
        assert done.returncode == 0, f"{self.name} made no database:\n{log_end(log_path)}"
