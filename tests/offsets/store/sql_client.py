"""The database behind a store, by an SQL client of another program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import NullPool

_DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}


def with_driver(url: str) -> str:
    scheme, _, rest = url.partition(":")
    return f"{_DRIVERS[scheme]}:{rest}"


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """A connection in a transaction, which is committed."""
    engine = create_engine(with_driver(url), poolclass=NullPool)
    with engine.begin() as connection:
        yield connection


def rows(url: str, statement: str) -> list[tuple[Any, ...]]:
    with connected(url) as connection:
        return [tuple(row) for row in connection.execute(text(statement))]


def run(url: str, *statements: str) -> None:
    with connected(url) as connection:
        for statement in statements:
            connection.execute(text(statement))
