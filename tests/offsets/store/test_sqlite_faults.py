"""An SQLite file that cannot be written, and URLs that are none: one line each."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from sparklag_offsets.errors import StoreAway, UnusableStore
from sparklag_offsets.store import open_store
from sparklag_offsets.store.batch_record import OffsetStore
from sparklag_offsets.store.sql import database as sql_engine
from sparklag_schemas.errors import install_command
from sparklag_schemas.text.locations import shown_url
from tests.messages import QUERY_ID
from tests.offsets.conftest import open_until_end
from tests.offsets.store.batches import places, record
from tests.offsets.store.test_stores import wide
from tests.scripts import run_script

READ_ONLY = """
import asyncio, os, pathlib
from sparklag_offsets.errors import StoreError
from sparklag_offsets.store import open_store
from tests.offsets.store.batches import record

async def main(folder):
    store = open_store(f"sqlite:///{folder}/there.db", create=True)
    await store.prepare()
    (folder / "there.db").chmod(0o444)
    folder.chmod(0o555)
    if os.geteuid() == 0:  # who may write anywhere; what is imported by now may be root's
        os.setgid(65534)
        os.setuid(65534)
    for name in ("there", "absent"):
        store = open_store(f"sqlite:///{folder}/{name}.db", create=True)
        try:
            await store.prepare()
            await store.write([record(0)])
        except StoreError as error:
            print(type(error).__name__, error)

asyncio.run(main(pathlib.Path(FOLDER)))
"""
WITHOUT = """
import sys
from sparklag_offsets.errors import StoreError
from sparklag_offsets.store import open_store
for missing, url, _ in MISSING:
    sys.modules[missing] = None
    try:
        open_store(url, create=True)
    except StoreError as error:
        print(type(error).__name__, error)
    del sys.modules[missing]
"""
MISSING = [
    # In the order in which they are imported.
    ("sqlalchemy", "sqlite:///offsets.db", "sqlite"),
    ("alembic", "postgresql://h/d", "postgresql"),
    ("aiosqlite", "sqlite:///offsets.db", "sqlite"),
    ("psycopg", "postgresql://h/d", "postgresql"),
    ("aiomysql", "mariadb://h/d", "mysql"),
    ("pymongo", "mongodb://h/d", "mongodb"),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "offsets.db"


@pytest.fixture
def folder_for_all() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sparklag-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


async def test_a_full_disk_is_reported_and_what_was_written_stays(
    sqlite_store: OffsetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # SQLite's own limit: its error is that of a full disk.
    plain = sql_engine._prepare_sqlite
    pages = 30

    def limited(connection: Any, entry: object) -> None:
        plain(connection, entry)
        connection.execute(f"PRAGMA max_page_count = {pages}")

    monkeypatch.setattr(sql_engine, "_prepare_sqlite", limited)
    full = open_store(sqlite_store.shown)
    await full.write([record(0)])
    with pytest.raises(StoreAway, match="database or disk is full") as raised:
        await full.write([record(1), wide(2), wide(3), wide(4), wide(5)])
    assert "\n" not in str(raised.value)
    assert sqlite_store.shown in str(raised.value)
    # All or nothing.
    assert [batch_id for _, batch_id in await places(sqlite_store)] == [0]
    pages = 10_000
    await full.write([record(1), wide(2)])
    assert [batch_id for _, batch_id in await places(sqlite_store)] == [0, 1, 2]


async def test_another_that_writes_for_too_long_is_reported_and_then_it_goes_on(
    sqlite_store: OffsetStore, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_engine, "_BUSY_MS", 50)
    with closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreAway, match="database is locked"):
            await sqlite_store.write([record(0)])
        # Who only reads waits for nobody.
        assert await sqlite_store.newest([QUERY_ID]) == {}
    await sqlite_store.write([record(0)])
    assert len(await places(sqlite_store)) == 1


async def test_a_file_that_is_no_database_is_named(tmp_path: Path, opened: AsyncExitStack) -> None:
    letter = tmp_path / "letter"
    letter.write_text("not a database, " * 100)
    store = open_until_end(f"sqlite:///{letter}", opened)
    with pytest.raises(StoreAway, match="file is not a database"):
        await store.prepare()
    with pytest.raises(StoreAway, match="file is not a database"):
        await store.queries()


async def test_a_folder_is_no_database(tmp_path: Path, opened: AsyncExitStack) -> None:
    with pytest.raises(StoreAway, match="unable to open database file"):
        await open_until_end(f"sqlite:///{tmp_path}", opened).queries()


def test_what_may_not_be_written_is_reported(folder_for_all: Path) -> None:
    ended = run_script(f"FOLDER = {str(folder_for_all)!r}\n{READ_ONLY}")
    folder_for_all.chmod(0o755)
    assert ended.exit_code == 0, ended.errors
    for name, line in zip(("there", "absent"), ended.lines, strict=True):
        assert line.startswith(
            f"StoreAway the offset store at sqlite:///{folder_for_all}/{name}.db"
        )
        assert "readonly database" in line or "unable to open database file" in line


def test_a_missing_package_is_named_with_its_extra() -> None:
    ended = run_script(f"MISSING = {MISSING!r}\n{WITHOUT}")
    assert ended.exit_code == 0, ended.errors
    assert ended.lines == [
        f"UnusableStore an offset store at {url.partition(':')[0]}:// needs {missing}:"
        f" {install_command(extra)}"
        for missing, url, extra in MISSING
    ]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", "begins with sqlite://"),
        ("offsets.db", "begins with sqlite://"),
        ("oracle://u:secret@h/d", "begins with sqlite://"),
        ("sqlite:offsets.db", "it takes sqlite:///offsets.db"),
        ("sqlite://", "name a file"),
        ("sqlite:///:memory:", "name a file"),
        ("sqlite:////nowhere/offsets.db", "there is no folder for it"),
        ("postgresql://u:secret@h", "names no database; it takes postgresql://user:password@"),
        ("postgresql://u:secret@h:port/d", "the password percent-encoded"),
        ("postgresql://u:se@secret@h/d", "@ as %40"),
        ("postgresql://u:se[secret@h", "names no database"),
        ("postgresql+nodriver://u:secret@h/d", "cannot be used"),
        ("mysql://u:secret@h", "names no database; it takes mysql://user:password@"),
        ("mongodb://u:secret@h", "it takes mongodb://user:password@"),
        ("mongodb://u:se/secret@h/d", "it takes mongodb://user:password@"),
        ("mongodb://h:99999/d", "Port must be"),
        ("mongodb://h", "No default database"),
    ],
)
def test_a_url_that_is_none_is_reported_in_one_line(url: str, expected: str) -> None:
    with pytest.raises(UnusableStore) as raised:
        open_store(url, create=True)
    text = str(raised.value)
    assert expected in text
    assert shown_url(url) in text
    assert "\n" not in text
    assert "secret" not in text + repr(raised.value.__cause__)


def test_reading_creates_no_file(file: Path) -> None:
    with pytest.raises(UnusableStore, match="there is no file") as raised:
        open_store(f"sqlite:///{file}")
    assert "\n" not in str(raised.value)
    assert not file.exists()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p@h:1/d", "postgresql://u:***@h:1/d"),
        ("postgresql://u:p/w@h/d?x=y", "postgresql://u:***@h/d"),
        ("postgresql://u:p?w@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:p@w@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u@corp:p@h/d", "postgresql://u@corp:***@h/d"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgresql://h/d?user=u&password=p", "postgresql://h/d"),
        ("mongodb://a:1,b:2/d?replicaSet=r", "mongodb://a:1,b:2/d"),
        ("sqlite:////var/offsets.db", "sqlite:////var/offsets.db"),
        ("u:p@h/d", "u:***@h/d"),
        ("http://u:p", "http://u:***"),
        ("http://[::1]:80/d", "http://[::1]:80/d"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert shown_url(url) == shown


async def test_a_store_that_is_closed_opens_again(sqlite_store: OffsetStore) -> None:
    await sqlite_store.write([record(0)])
    await sqlite_store.aclose()
    await sqlite_store.aclose()
    assert len(await places(sqlite_store)) == 1
