"""Errors of databases, as they are reported."""

from __future__ import annotations

import asyncio

import pytest
from pymongo.errors import OperationFailure
from sqlalchemy.exc import DBAPIError, InvalidRequestError

from sparklag_offsets.errors import Deadlock, NewerSchema, StoreAway
from sparklag_offsets.store.mongo_store import _errors_translated as mongo_errors_translated
from sparklag_offsets.store.sql.database import errors_translated

STORE = "postgresql://h/d"


class DriverError(Exception):
    def __init__(self, text: str, sqlstate: str | None = None) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


def wrapped(text: str, sqlstate: str | None = None) -> DBAPIError:
    return DBAPIError("INSERT INTO t", {"secret": 1}, DriverError(text, sqlstate))


@pytest.mark.parametrize(
    "error",
    [
        wrapped("(1213, 'Deadlock found when trying to get lock; try restarting transaction')"),
        wrapped("in any language", "40P01"),
    ],
)
def test_a_deadlock_has_an_error_of_its_own(error: DBAPIError) -> None:
    with pytest.raises(Deadlock), errors_translated(STORE):
        raise error


def test_what_mongodb_refuses_is_reported() -> None:
    with (
        pytest.raises(StoreAway, match=f"^the offset store at {STORE}: No space left on device"),
        mongo_errors_translated(STORE),
    ):
        raise OperationFailure("No space left on device", 14031)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (wrapped("the server\n\tclosed  the connection"), ": the server closed the connection"),
        (wrapped("database or disk is full"), ": database or disk is full"),
        (wrapped("x" * 10_000), ": " + "x" * 300 + " …"),
        (wrapped(""), ": DriverError"),
        (InvalidRequestError("no"), ": no"),
        (ConnectionRefusedError("refused"), ": refused"),
        (asyncio.TimeoutError(), " does not answer"),
    ],
)
def test_other_errors_are_one_short_line(error: Exception, text: str) -> None:
    with pytest.raises(StoreAway) as raised, errors_translated(STORE):
        raise error
    assert str(raised.value) == f"the offset store at {STORE}{text}"


def test_our_own_errors_stay_as_they_are() -> None:
    with (
        pytest.raises(NewerSchema, match=r"^the offset store at here has schema 2"),
        errors_translated(STORE),
    ):
        raise NewerSchema("here", "2", "1")
