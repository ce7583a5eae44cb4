"""The queries of a Spark Connect session while the session is stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from pyspark.sql.connect import proto

from sparklag_listener.connect.queries import ConnectClient, ConnectQueries
from sparklag_listener.events.session import ConnectionLost, SparkUnavailable


class StubClient:
    """A client whose requests raise `failure`: no real one can be stopped mid-request at will."""

    is_stopped = False
    ends_with_session = True
    failure: Callable[[], Exception] | None = None

    def command(self) -> Any:
        return proto.Command()

    def send(self, command: Any, result: str) -> Any:
        if self.failure is not None:
            raise self.failure()
        return proto.StreamingQueryManagerCommandResult()


def stopped_in(failure: Exception) -> ConnectQueries:
    """A session that answered, and was stopped while the next request failed."""
    client = StubClient()
    queries = ConnectQueries(cast(ConnectClient, client))
    assert not queries.list_active().is_session_stopped
    client.failure = lambda: failure
    with pytest.raises(type(failure)):
        queries.list_active()
    client.is_stopped = True
    return queries


def test_a_session_stopped_during_a_request_has_ended_with_its_queries() -> None:
    assert stopped_in(ConnectionLost("channel closed")).list_active().is_session_stopped


def test_a_session_stopped_while_its_server_is_away_may_have_queries_that_go_on() -> None:
    with pytest.raises(ConnectionLost):
        stopped_in(SparkUnavailable("no route to host")).list_active()
