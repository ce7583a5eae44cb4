"""A Spark Connect session's client, for our requests beside the user's own."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparklag_listener.events.session import ConnectionLost, SparkUnavailable
from sparklag_schemas.redaction import redact

_GONE = ("INVALID_HANDLE.SESSION_", "SESSION_CHANGED", "SESSION_NOT_FOUND", "SESSION_SWITCHED",
         "NO_ACTIVE_SESSION", "Channel closed", "closed channel")  # fmt: skip
_MAX_CHARS = 300


class ConnectClient:
    """Sends commands of the Spark Connect protocol in the session of `spark`, over its channel.

    Unlike the user's own, they are not retried for ten minutes while the server is away, and show
    no progress. Each blocks until the server answers.
    """

    def __init__(self, spark: Any) -> None:
        from grpc import RpcError  # type: ignore[import-untyped]  # grpc has no types
        from pyspark.errors import PySparkException
        from pyspark.sql.connect import proto

        self._spark = spark
        self._make_command: Any = proto.Command
        self._make_operation: Any = proto.ConfigRequest.Operation
        # Others: the channel is closed, or the response has another form.
        others = (OSError, ValueError, AttributeError, TypeError, LookupError)
        self._failures: tuple[type[Exception], ...] = (RpcError, PySparkException, *others)
        # A shallow copy: it shares the channel, and has its own settings.
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
        """An empty command of the protocol."""
        return self._make_command()

    def send(self, command: Any, result: str | None = None) -> Any:
        """The result of that name, if any. Raises SparkUnavailable, or ConnectionLost where the
        session is gone."""
        with self.errors_translated():
            results = self._client.execute_command(command)[1]
            return results[result] if result is not None else None

    def properties(self, prefix: str) -> dict[str, str]:
        """Spark's properties in this session whose names begin so. Raises as `send`."""
        operation = self._make_operation()
        operation.get_all.prefix = prefix
        with self.errors_translated():
            return {prefix + name: value for name, value in self._client.config(operation).pairs}

    @contextmanager
    def errors_translated(self) -> Iterator[None]:
        """Raise errors of pyspark's client as SparkUnavailable."""
        try:
            yield
        except self._failures as error:
            is_gone = any(sign in str(error) for sign in _GONE)
            raise (ConnectionLost if is_gone else SparkUnavailable)(_brief(error)) from error


def _brief(error: Exception) -> str:
    """One line, without gRPC's own debugging text."""
    text = str(error)
    details = re.search(r'details = "([^"\n]+)', text)
    line = details.group(1) if details else " ".join(text.split())
    return redact(line)[:_MAX_CHARS] or type(error).__name__
