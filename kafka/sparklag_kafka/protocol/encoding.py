"""Requests as an aiokafka connection sends them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, Final

from aiokafka.protocol.api import RequestStruct
from aiokafka.protocol.types import Schema

from sparklag_kafka.protocol.requests import not_taken
from sparklag_schemas import IsolationLevel

Versions = dict[int, tuple[int, int]]
"""The lowest and the highest version that a broker supports, by API key."""

CONSUMER_REPLICA_ID: Final = -1
ISOLATION_CODES: Final[Mapping[IsolationLevel, int]] = {"read_uncommitted": 0, "read_committed": 1}


class PreparedRequest(RequestStruct):  # type: ignore[misc]  # aiokafka has no types
    """A request as an aiokafka connection sends it. `make_response` takes the response's bytes.

    It must not decode them: an exception there would close the connection.
    """

    API_KEY = API_VERSION = -1
    SCHEMA = Schema()
    RESPONSE_TYPE: Any = None

    def __init__(
        self,
        key: int,
        version: int,
        body: bytes,
        flexible: bool,
        make_response: Callable[[bytes], Any],
    ) -> None:
        self.API_KEY = key
        self.API_VERSION = version
        self.FLEXIBLE_VERSION = flexible
        # In place of aiokafka's response class.
        self.RESPONSE_TYPE = SimpleNamespace(decode=lambda data: make_response(data.read()))
        self._body = body

    def encode(self) -> bytes:
        return self._body


def newest(versions: Versions, key: int, candidates: Iterable[int]) -> int:
    """The first of `candidates` that the broker supports. Raises IncompatibleBrokerVersion."""
    lowest, highest = versions.get(key, (0, -1))
    for version in candidates:
        if lowest <= version <= highest:
            return version
    raise not_taken(key)
