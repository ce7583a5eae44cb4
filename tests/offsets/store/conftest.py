"""A database of each kind, empty, and the store in it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

import pytest

from sparklag_offsets.store.batch_record import OffsetStore
from tests.databases.server import DatabaseServer
from tests.offsets.conftest import open_until_end

OF_SQL = [
    "sqlite",
    pytest.param("postgresql", marks=pytest.mark.packaging),
    pytest.param("mariadb", marks=pytest.mark.packaging),
]
OF_ALL = [*OF_SQL, pytest.param("mongo_protocol", marks=pytest.mark.packaging)]


class Opening(Protocol):
    async def __call__(self, *, prepared: bool = True) -> OffsetStore: ...


@pytest.fixture(params=OF_ALL)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return empty_database(request, tmp_path)


@pytest.fixture(params=OF_SQL)
def sql_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return empty_database(request, tmp_path)


def empty_database(request: pytest.FixtureRequest, folder: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{folder}/offsets.db"
    server = request.getfixturevalue(request.param)
    assert isinstance(server, DatabaseServer)
    return server.new_database()


@pytest.fixture
async def another(url: str, opened: AsyncExitStack) -> Opening:
    async def open_another(*, prepared: bool = True) -> OffsetStore:
        store = open_until_end(url, opened, create=True)
        if prepared:
            await store.prepare()
        return store

    return open_another


@pytest.fixture
async def store(another: Opening) -> OffsetStore:
    return await another()
