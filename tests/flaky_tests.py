"""`@pytest.mark.flaky(reason=..., since="2026-11-27")`: a test that is known to fail at times.

It runs, and is reported apart from the others, as xfailed or xpassed, with reason and date. After
14 days it fails.
"""

from __future__ import annotations

from collections.abc import Generator
from datetime import date, timedelta

import pytest

ALLOWED = timedelta(days=14)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pycollect_makeitem() -> Generator[None, object, object]:
    made = yield
    for item in made if isinstance(made, list) else ():
        marker = item.get_closest_marker("flaky")
        if isinstance(item, pytest.Item) and marker is not None:
            _read(item, marker)
    return made


def _read(item: pytest.Item, marker: pytest.Mark) -> None:
    """Raises CollectError, which is an error of its file."""
    try:
        reason, since = _arguments(*marker.args, **marker.kwargs)
    except (TypeError, ValueError) as error:
        expected = "expected flaky(reason='...', since='YYYY-MM-DD')"
        raise pytest.Collector.CollectError(f"{item.nodeid}: {expected}: {error}") from error
    text = f"flaky since {since}: {reason}"
    if date.today() <= since + ALLOWED:
        item.add_marker(pytest.mark.xfail(reason=text, strict=False))
    else:
        item.stash[_expired] = f"{item.nodeid}: {text}: more than {ALLOWED.days} days"


def _arguments(reason: str, since: str) -> tuple[str, date]:
    day = date.fromisoformat(since)
    if not reason.strip():
        raise ValueError("the reason is empty")
    if day > date.today():
        raise ValueError(f"{day} is in the future")
    return reason, day


_expired = pytest.StashKey[str]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if (why := item.stash.get(_expired, None)) is not None:
        pytest.fail(why, pytrace=False)
