"""What databases say when they fail, as it is told."""

from __future__ import annotations

import asyncio

import pytest
from pymongo.errors import OperationFailure
from sqlalchemy.exc import DBAPIError, InvalidRequestError

from sparklag_offsets.errors import Deadlock, NewerSchema, StoreAway, StoreFull
from sparklag_offsets.store.mongo_store import _errors_translated as mongo_errors_translated
from sparklag_offsets.store.sql.engine import errors_translated

STORE = "postgresql://h/d"


class DriverError(Exception):
    """Not a driver's: of the shape they have."""

    def __init__(self, text: str, sqlstate: str | None = None) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


def wrapped(text: str, sqlstate: str | None = None) -> DBAPIError:
    return DBAPIError("INSERT INTO t", {"secret": 1}, DriverError(text, sqlstate))


@pytest.mark.parametrize(
    "error",
    [
        wrapped("database or disk is full"),
        wrapped('could not extend file "base/1/2": No space left on device'),
        wrapped("anything at all, in any language", "53100"),
        wrapped("(1114, \"The table 'sparklag_batches' is full\")"),
        wrapped("(1021, 'Disk full (/tmp/#sql); waiting for someone to free some space...')"),
        wrapped("(1030, 'Got error 28 \"No space left on device\" from storage engine')"),
    ],
)
def test_no_room_is_told_apart(error: DBAPIError) -> None:
    with pytest.raises(StoreFull, match=f"the offset store at {STORE} has no room: ") as raised:
        with errors_translated(STORE):
            raise error
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "error",
    [
        wrapped("(1213, 'Deadlock found when trying to get lock; try restarting transaction')"),
        wrapped("in any language", "40P01"),
    ],
)
def test_a_deadlock_is_told_apart(error: DBAPIError) -> None:
    with pytest.raises(Deadlock), errors_translated(STORE):
        raise error


def test_no_room_in_mongodb_is_told_apart() -> None:
    with pytest.raises(StoreFull), mongo_errors_translated(STORE):
        raise OperationFailure("no room", 14031)
    with pytest.raises(StoreAway), mongo_errors_translated(STORE):
        raise OperationFailure("not authorized", 13)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (wrapped("the server\n\tclosed  the connection"), ": the server closed the connection"),
        (wrapped("x" * 10_000), ": " + "x" * 300 + " …"),
        (wrapped(""), ": DriverError"),
        (InvalidRequestError("no"), ": no"),
        (ConnectionRefusedError("refused"), ": refused"),
        (asyncio.TimeoutError(), " does not answer"),
    ],
)
def test_all_else_is_one_short_line(error: Exception, says: str) -> None:
    with pytest.raises(StoreAway) as raised, errors_translated(STORE):
        raise error
    assert str(raised.value) == f"the offset store at {STORE}{says}"


def test_our_own_errors_stay_as_they_are() -> None:
    with (
        pytest.raises(NewerSchema, match=r"^the offset store at here has schema 2"),
        errors_translated(STORE),
    ):
        raise NewerSchema("here", "2", "1")
