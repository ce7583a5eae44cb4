"""What a test asks of a database, by its URL alone and with a client of its kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pymongo
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import NullPool

_DRIVERS = {"postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}


def keep(url: str, number: int) -> None:
    """Write it down: it is kept when this returns."""
    if _is_mongo(url):
        with _collection(url) as collection:
            collection.insert_one({"number": number})
        return
    with _connection(url) as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS kept (number INTEGER)"))
        connection.execute(text("INSERT INTO kept VALUES (:number)"), {"number": number})


def kept(url: str) -> list[int]:
    """What was."""
    if _is_mongo(url):
        with _collection(url) as collection:
            return sorted(document["number"] for document in collection.find())
    with _connection(url) as connection:
        return sorted(connection.scalars(text("SELECT number FROM kept")).all())


def tables(url: str) -> list[str]:
    """Those of a database, or its collections."""
    if _is_mongo(url):
        with _collection(url) as collection:
            return list(collection.database.list_collection_names())
    ours = "SELECT table_name FROM information_schema.tables WHERE table_schema = "
    schema = "'public'" if url.startswith("postgresql:") else "DATABASE()"
    with _connection(url) as connection:
        return list(connection.scalars(text(ours + schema)).all())


def _is_mongo(url: str) -> bool:
    return urlsplit(url).scheme == "mongodb"


@contextmanager
def _connection(url: str) -> Iterator[Connection]:
    scheme, _, rest = url.partition(":")
    with create_engine(f"{_DRIVERS[scheme]}:{rest}", poolclass=NullPool).begin() as connection:
        yield connection


@contextmanager
def _collection(url: str) -> Iterator[Any]:
    client: pymongo.MongoClient[Any] = pymongo.MongoClient(url, serverSelectionTimeoutMS=10_000)
    with client:
        yield client.get_default_database()["kept"]
