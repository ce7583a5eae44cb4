"""A proxy before one broker that takes only the requests in a service's table of versions."""

from __future__ import annotations

import json
import socket
import struct
from io import BytesIO
from pathlib import Path
from typing import Any, Final, NamedTuple

from aiokafka.protocol.api import RequestHeader_v1
from aiokafka.protocol.produce import ProduceRequest

from tests.second_client import SecondClient
from tests.tcp_proxy import TcpProxy

TABLES: Final = Path(__file__).with_name("service_versions")
PRODUCE, API_VERSIONS, INIT_PRODUCER_ID = 0, 18, 22
_PRODUCE: Final = {each.API_VERSION: each for each in ProduceRequest._CLASSES}
_REFUSED_ROW: Final[tuple[Any, ...]] = (-1, -1, -1, [], None)
"""Offset, timestamp, log start offset, errors of records, text; older versions have fewer."""


class Table(NamedTuple):
    """What a service takes, by API key, and the error codes of what it refuses."""

    apis: dict[int, tuple[int, int]]
    compression: int = 0
    producer_ids: int = 0


def table_of(service: str) -> Table:
    read = json.loads((TABLES / f"{service}.json").read_text())
    apis = {int(key): (lowest, highest) for key, (lowest, highest) in read["apis"].items()}
    return Table(apis, next(iter(read["compression"]), 0))


class ServiceProxy(TcpProxy):
    """Closes the connection at a request outside of `table`, as Azure Event Hubs does."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.table = table
        self.client: SecondClient
        self.codecs: list[int] = []
        """Of each produced batch."""
        self._answers: dict[tuple[socket.socket, int], bytes] = {}
        self.bootstrap_servers = f"127.0.0.1:{self.port}"

    def _read(self, source: socket.socket, target: socket.socket) -> bytes:
        size = source.recv(4, socket.MSG_WAITALL)
        if len(size) < 4:
            return b""
        frame = source.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL)
        if source.getpeername()[1] == self.upstream:
            (number,) = struct.unpack_from(">i", frame)
            frame = self._answers.pop((source, number), frame)
            return struct.pack(">i", len(frame)) + frame
        key, version, number = struct.unpack_from(">hhi", frame)
        lowest, highest = self.table.apis.get(key, (0, -1))
        is_taken = lowest <= version <= highest
        if not is_taken and key != API_VERSIONS:
            return b""
        answer = self._answer(key, version, frame, is_taken)
        if answer is not None:
            # The broker keeps the order of answers: it gets a request that changes nothing.
            self._answers[target, number] = struct.pack(">i", number) + answer
            frame = struct.pack(">hhih", API_VERSIONS, 0, number, -1)
        return struct.pack(">i", len(frame)) + frame

    def _answer(self, key: int, version: int, frame: bytes, is_taken: bool) -> bytes | None:
        """The service's own answer. None: the broker's."""
        if key == API_VERSIONS:
            rows = b"".join(struct.pack(">hhh", k, *v) for k, v in self.table.apis.items())
            return struct.pack(">hi", 0 if is_taken else 35, len(self.table.apis)) + rows
        if key == INIT_PRODUCER_ID and self.table.producer_ids:
            return struct.pack(">ihqh", 0, self.table.producer_ids, -1, -1)
        if key == PRODUCE:
            return self._refusal(version, BytesIO(frame))
        return None

    def _refusal(self, version: int, data: BytesIO) -> bytes | None:
        RequestHeader_v1.SCHEMA.decode(data)
        topics = _PRODUCE[version].SCHEMA.decode(data)[-1]
        codecs = [batch[22] & 7 for _, rows in topics for _, batch in rows if batch]
        self.codecs += codecs
        if not (self.table.compression and any(codecs)):
            return None
        code, fields = self.table.compression, 2 if version < 5 else 3 if version < 8 else 5
        rows = [
            (topic, [(number, code, *_REFUSED_ROW[:fields]) for number, _ in partitions])
            for topic, partitions in topics
        ]
        return bytes(_PRODUCE[version].RESPONSE_TYPE.SCHEMA.encode((rows, 0)))
