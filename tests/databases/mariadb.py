"""A real MariaDB for tests: installed on this machine, or taken out of Debian's packages."""

from __future__ import annotations

import getpass
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.databases.server import HOST, PASSWORD, USER, SqlServer
from tests.debian_packages import ProgramsMissing, library_path, unpacked_packages, with_libraries

_PACKAGES: Final = ("mariadb-server-core",)
_SETTINGS: Final = (
    f"--bind-address={HOST}",
    "--skip-name-resolve",
    "--skip-log-bin",
    # As Debian has it.
    "--character-set-server=utf8mb4",
    "--collation-server=utf8mb4_general_ci",
    # A commit is with the system when it is answered, and on the disk some time later.
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-log-file-size=16M",
    "--innodb-buffer-pool-size=32M",
    # Containers forbid it.
    "--innodb-use-native-aio=0",
)


@dataclass(frozen=True)
class MariaDBPrograms:
    mariadbd: Path
    base: Path
    libraries: str

    @property
    def share(self) -> Path:
        return self.base / "share/mysql"


def mariadb_programs() -> MariaDBPrograms:
    """Of this machine, of the cache, or unpacked there. Raises ProgramsMissing."""
    # Where Debian has it is not on everyone's PATH.
    path = os.pathsep.join([*os.get_exec_path(), "/usr/sbin"])
    result = _detected(shutil.which("mariadbd", path=path), "")
    if result is not None:
        return result
    unpacked = unpacked_packages(
        "mariadb", _PACKAGES, needs="lib.*", instead="install MariaDB's server (mariadbd)"
    )
    result = _detected(str(unpacked / "usr/sbin/mariadbd"), library_path(unpacked))
    if result is None:
        raise ProgramsMissing(f"Debian's packages {_PACKAGES} hold other programs than expected")
    return result


def _detected(mariadbd: str | None, libraries: str) -> MariaDBPrograms | None:
    if mariadbd is None:
        return None
    path = Path(mariadbd).resolve()
    programs = MariaDBPrograms(path, path.parents[1], libraries)
    if not (path.exists() and (programs.share / "mysql_system_tables.sql").exists()):
        return None
    return programs


class MariaDBServer(SqlServer):
    """Its user has all rights, and may give them to others."""

    name = "MariaDB"
    scheme = "mariadb"
    default_database = "sparklag"
    driver = "pymysql"

    def _options(self, database: str) -> dict[str, Any]:
        return {"database": database or None, "read_timeout": 30}

    def _prepare(self) -> None:
        self._programs = mariadb_programs()
        self.data.mkdir()
        # Debian's mariadb-install-db does this too, by programs that are in its client's packages.
        statements = "\n".join(
            [
                "CREATE DATABASE mysql;",
                "USE mysql;",
                "SET @auth_root_socket = NULL;",
                *(
                    (self._programs.share / f"{name}.sql").read_text()
                    for name in ("mysql_system_tables", "mysql_system_tables_data")
                ),
                "DELETE FROM global_priv WHERE User = 'root';",
                "FLUSH PRIVILEGES;",
                f"CREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';",
                f"GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'%' WITH GRANT OPTION;",
                f"CREATE DATABASE {self.default_database};",
                "",
            ]
        )
        self._prepare_by([*self._command(), "--bootstrap"], statements)

    def _command(self) -> Sequence[str]:
        return [
            str(self._programs.mariadbd),
            "--no-defaults",
            f"--user={getpass.getuser()}",  # root has to say so
            f"--basedir={self._programs.base}",
            f"--lc-messages-dir={self._programs.share}",
            f"--character-sets-dir={self._programs.share / 'charsets'}",
            f"--datadir={self.data}",
            f"--tmpdir={self.folder}",
            f"--port={self.port}",
            f"--socket={self.folder / 'socket'}",
            f"--pid-file={self.folder / 'pid'}",
            *_SETTINGS,
        ]

    def _environment(self) -> Mapping[str, str] | None:
        return with_libraries(self._programs.libraries)
