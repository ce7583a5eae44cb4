"""A real PostgreSQL for tests: installed on this machine, or taken out of Debian's packages.

It refuses to run as root: then it runs as nobody.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.databases.server import HOST, PASSWORD, USER, SqlServer
from tests.debian_packages import ProgramsMissing, library_path, unpacked_packages, with_libraries

_PACKAGES: Final = ("postgresql",)  # of whichever version that is
# LLVM is for `jit`, and five times as large as all the rest.
_NEEDS: Final = r"postgresql-\d+|lib(?!llvm).*"
_SETTINGS: Final = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "shared_buffers": "32MB",
    # A commit is with the system when it is answered (synchronous_commit), never on the disk; a
    # page may still be torn by a kill (full_page_writes).
    "fsync": "off",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    # In its folder, to be gone with it.
    "dynamic_shared_memory_type": "mmap",
    "jit": "off",
    "timezone": "GMT",
    "log_timezone": "GMT",
}
_IPC_RMID: Final = 0


@dataclass(frozen=True)
class PostgreSQLPrograms:
    """The folder of `initdb` and `postgres`."""

    folder: Path
    libraries: str
    unpacked: Path | None
    """What has to stay together, where they are not installed."""


def postgresql_programs() -> PostgreSQLPrograms:
    """Of this machine, of the cache, or unpacked there. Raises ProgramsMissing."""
    # Where Debian has them is on nobody's PATH.
    for folder in [*map(Path, os.get_exec_path()), *_versions(Path("/"))]:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return PostgreSQLPrograms((folder / "postgres").resolve().parent, "", None)
    unpacked = unpacked_packages(
        "postgresql",
        _PACKAGES,
        needs=_NEEDS,
        instead="install PostgreSQL's server (initdb, postgres)",
    )
    for folder in _versions(unpacked):
        return PostgreSQLPrograms(folder, library_path(unpacked), unpacked)
    raise ProgramsMissing(f"Debian's packages {_PACKAGES} hold other programs than expected")


def _versions(root: Path) -> list[Path]:
    return sorted(
        root.glob("usr/lib/postgresql/*/bin"), key=lambda path: (len(str(path)), path), reverse=True
    )


class PostgreSQLServer(SqlServer):
    """Its user is its superuser."""

    name = "PostgreSQL"
    scheme = "postgresql"
    default_database = "postgres"
    driver = "psycopg"
    stop_signal = signal.SIGINT  # at SIGTERM it waits until all clients have gone

    def _options(self, database: str) -> dict[str, Any]:
        return {"dbname": database or self.default_database}

    @property
    def folder(self) -> Path:
        if self._folder is None and os.geteuid() == 0:
            self._folder = _folder_of_nobody(f"sparklag-{self.scheme}-")
        return super().folder

    def _prepare(self) -> None:
        self._programs = self._reachable(postgresql_programs())
        password = self.folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)  # in a folder that is closed to others
        self._prepare_by(
            [
                *_as_nobody(),
                str(self._programs.folder / "initdb"),
                f"--pgdata={self.data}",
                f"--username={USER}",
                f"--pwfile={password}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
            ]
        )
        with (self.data / "postgresql.conf").open("a") as configuration:
            for name, value in _SETTINGS.items():
                configuration.write(f"{name} = '{value}'\n")

    def _command(self) -> Sequence[str]:
        postgres = self._programs.folder / "postgres"
        return [*_as_nobody(), str(postgres), "-D", str(self.data), "-p", str(self.port)]

    def _environment(self) -> Mapping[str, str] | None:
        return with_libraries(self._programs.libraries)

    def _release(self) -> None:
        remove_shared_memory(self.data)

    def _reachable(self, programs: PostgreSQLPrograms) -> PostgreSQLPrograms:
        """Root's cache is closed to nobody: there the server has a copy."""
        if programs.unpacked is None or os.geteuid() != 0 or _is_open(programs.unpacked):
            return programs
        copy = self.folder / "programs"
        shutil.copytree(programs.unpacked, copy, symlinks=True)
        folder = copy / programs.folder.relative_to(programs.unpacked)
        return PostgreSQLPrograms(folder, library_path(copy), copy)


def remove_shared_memory(data: Path) -> None:
    """That of a server which was killed, and will not start again: it leaves a small segment.

    Its number is in the file that a server removes when it is stopped.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        line = (data / "postmaster.pid").read_text().splitlines()[6]
        ctypes.CDLL(None).shmctl(int(line.split()[1]), _IPC_RMID, None)


def _as_nobody() -> list[str]:
    """What a command begins with, where this is root.

    A process that becomes another user's is tied to its parent no more, and has to say so again;
    only where ChildProcess did, for it would die with any other thread than the main one.
    """
    if os.geteuid() != 0:
        return []
    nobody = pwd.getpwnam("nobody")
    command = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
    if threading.current_thread() is threading.main_thread():
        command.append("--pdeathsig=KILL")
    return command


def _folder_of_nobody(prefix: str) -> Path:
    parents = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    parent = next((each for each in parents if _is_open(each)), None)
    assert parent is not None, f"{parents[0]} is closed to others than root: set TMPDIR"
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return folder


def _is_open(folder: Path) -> bool:
    resolved = folder.resolve()
    return all(each.stat().st_mode & 0o001 for each in (resolved, *resolved.parents))
