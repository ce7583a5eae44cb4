"""Errors of SQL databases, translated to ours."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy.exc import DataError, DBAPIError, SQLAlchemyError

from sparklag_offsets.errors import Deadlock, RecordRefused, StoreAway, StoreError, StoreFull

_FULL: Final = re.compile(
    r"disk is full|no space left|disk full|\(1114|\(1021|\(28, |could not extend file"
    r"|table .* is full|quota exceeded",
    re.IGNORECASE,
)
_SQLSTATE_FULL: Final = "53100"
_DEADLOCK: Final = re.compile(r"\(1213,")
_SQLSTATE_DEADLOCK: Final = "40P01"
_MAX_TEXT: Final = 300


@contextmanager
def errors_translated(shown: str) -> Iterator[None]:
    """Translate errors to StoreError, with the store's name and without credentials."""
    try:
        yield
    except StoreError:
        raise
    except asyncio.TimeoutError:
        raise StoreAway(f"the offset store at {shown} does not answer") from None
    except DataError as error:
        reason = _line(error.orig or error)
        raise RecordRefused(f"the offset store at {shown} refuses a record: {reason}") from error
    except DBAPIError as error:
        reason = _line(error.orig or error)
        sqlstate = getattr(error.orig, "sqlstate", None)
        if _FULL.search(reason) or sqlstate == _SQLSTATE_FULL:
            raise StoreFull(f"the offset store at {shown} has no room: {reason}") from error
        if _DEADLOCK.match(reason) or sqlstate == _SQLSTATE_DEADLOCK:
            raise Deadlock(f"the offset store at {shown}: {reason}") from error
        raise StoreAway(f"the offset store at {shown}: {reason}") from error
    except (SQLAlchemyError, OSError) as error:
        # OSError: a driver may raise the system's error as it is.
        raise StoreAway(f"the offset store at {shown}: {_line(error)}") from error


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + " …"
