"""A Spark Connect session's client, for requests of ours beside the user's own."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparklag_listener.events.queries import ConnectionLost, Unanswered
from sparklag_schemas.redaction import redact

_GONE = ("INVALID_HANDLE.SESSION_", "SESSION_CHANGED", "SESSION_NOT_FOUND", "SESSION_SWITCHED",
         "NO_ACTIVE_SESSION", "Channel closed", "closed channel")  # fmt: skip
_MOST_CHARS = 300


class ConnectClient:
    """Sends commands of the Spark Connect protocol in the session of `spark`, over its channel.

    Unlike the user's own, they are sent once and not for ten minutes again and again while the
    server is away, and show no progress. Each blocks as long as the server takes.
    """

    def __init__(self, spark: Any) -> None:
        from grpc import RpcError  # type: ignore[import-untyped]  # grpc has no types
        from pyspark.errors import PySparkException
        from pyspark.sql.connect import proto

        self._spark = spark
        self._make_command: Any = proto.Command
        # What it raises where the channel is closed, or answers in another way than we know.
        others = (OSError, ValueError, AttributeError, TypeError, LookupError)
        self._failures: tuple[type[Exception], ...] = (RpcError, PySparkException, *others)
        # Not `copy` of the channel: it stays one. What is set here is the copy's alone.
        self._client = copy.copy(spark.client)
        self._client.disable_reattachable_execute()
        if hasattr(self._client, "set_retry_policies"):
            self._client.set_retry_policies([])
        self._client._retry_policy = {"max_retries": 0}  # pyspark 3.5's
        self._client._progress_handlers = []

    @property
    def is_stopped(self) -> bool:
        """Whether the user has stopped the session."""
        return bool(self._spark.is_stopped)

    @property
    def ends_with_session(self) -> bool:
        """Whether stopping the session ends its queries on the server too."""
        return bool(getattr(self._spark, "release_session_on_close", True))

    def command(self) -> Any:
        """An empty one, of the protocol."""
        return self._make_command()

    def send(self, command: Any, answer: str | None = None) -> Any:
        """The server's answer of that name, if there is to be one. Raises Unanswered, or
        ConnectionLost where there is no session to ask."""
        with self.translated():
            answers = self._client.execute_command(command)[1]
            return answers[answer] if answer is not None else None

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Errors of pyspark's client as Unanswered."""
        try:
            yield
        except self._failures as error:
            told = _brief(error)
            if any(sign in str(error) for sign in _GONE):
                raise ConnectionLost(told) from error
            raise Unanswered(told) from error


def _brief(error: Exception) -> str:
    """One line, without gRPC's own debugging text."""
    text = str(error)
    details = re.search(r'details = "([^"\n]+)', text)
    found = details.group(1) if details else " ".join(text.split())
    return redact(found)[:_MOST_CHARS] or type(error).__name__
