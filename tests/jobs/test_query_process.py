"""How a process ends whose query does not."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from sparklag_jobs.query_process import StopSignals, stop_query
from tests.logged import logged

LATE = "java.util.concurrent.TimeoutException"


class FakeJavaException:
    _target_id = "o1"
    _gateway_client = None

    def __init__(self, name: str) -> None:
        self._name = name

    def getClass(self) -> FakeJavaException:  # noqa: N802  # as Java has it
        return self

    def getName(self) -> str:  # noqa: N802  # as Java has it
        return self._name


class FakeQuery:
    name = "orders"

    def __init__(self, error: str) -> None:
        self._error = error

    def stop(self) -> None:
        raise Py4JJavaError("", FakeJavaException(self._error))


class FakeSignals(StopSignals):
    def __init__(self, received: bool) -> None:
        self.received = received


def test_after_a_signal_a_long_batch_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    query: Any = FakeQuery(LATE)
    stop_query(query, FakeSignals(received=True))
    (line,) = logged(caplog, logging.WARNING)
    assert line == "query orders: its batch is cut off, the next start runs it again"


@pytest.mark.parametrize(("error", "received"), [(LATE, False), ("java.lang.Error", True)])
def test_anything_else_that_stops_no_query_is_a_failure(error: str, received: bool) -> None:
    query: Any = FakeQuery(error)
    with pytest.raises(Py4JJavaError):
        stop_query(query, FakeSignals(received))
