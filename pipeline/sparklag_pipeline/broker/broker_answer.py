"""Ask a broker whether it is up, by the protocol itself.

A plain socket, because this must work from any thread, whether or not an event loop runs there,
and say nothing in anybody's log while the answer is still no.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

_METADATA: Final = 3
_METADATA_VERSION: Final = 2
_CORRELATION_ID: Final = 1
_CLIENT_ID: Final = b"sparklag"
_TIMEOUT_S: Final = 5.0


def broker_answers(address: str, cluster_id: str) -> bool:
    """Whether a broker of this cluster answers at host:port and has joined it.

    A broker lists itself among the live ones only once it may serve. Raises nothing.
    """
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as connection:
            connection.sendall(_metadata_request())
            with connection.makefile("rb") as stream:
                (size,) = struct.unpack(">i", stream.read(4))
                answer = stream.read(size)
        brokers, found = _brokers_and_cluster(answer)
    except (OSError, struct.error, UnicodeDecodeError):
        return False
    return brokers > 0 and found == cluster_id


def _metadata_request() -> bytes:
    # An empty list of topics: none, and so none is created by asking.
    header = struct.pack(
        f">hhih{len(_CLIENT_ID)}s",
        _METADATA,
        _METADATA_VERSION,
        _CORRELATION_ID,
        len(_CLIENT_ID),
        _CLIENT_ID,
    )
    body = header + struct.pack(">i", 0)
    return struct.pack(">i", len(body)) + body


def _brokers_and_cluster(answer: bytes) -> tuple[int, str | None]:
    """Of a Metadata response of version 2: how many brokers, and the cluster's id."""
    _correlation_id, brokers = struct.unpack_from(">ii", answer)
    position = 8
    for _ in range(brokers):
        position += 4  # node id
        _host, position = _string(answer, position)
        position += 4  # port
        _rack, position = _string(answer, position)
    cluster_id, _ = _string(answer, position)
    return brokers, cluster_id


def _string(answer: bytes, position: int) -> tuple[str | None, int]:
    (size,) = struct.unpack_from(">h", answer, position)
    start = position + 2
    if size < 0:
        return None, start
    return answer[start : start + size].decode(), start + size
