"""Whether a broker responds, without an event loop."""

from __future__ import annotations

import io
import socket
import struct
from typing import Final

from aiokafka.protocol.metadata import MetadataRequest_v2, MetadataResponse_v2

_TIMEOUT_S: Final = 5.0


def broker_answers(address: str, cluster_id: str) -> bool:
    """Whether a broker of this cluster responds at host:port and is registered. Raises nothing.

    On a plain socket: it works in any thread, whether or not an event loop runs there, and logs
    nothing while there is no broker yet.
    """
    host, _, port = address.rpartition(":")
    request = MetadataRequest_v2([])  # of no topics: else it would create them
    message = request.build_request_header(1, "sparklag").encode() + request.encode()
    try:
        with socket.create_connection((host, int(port)), _TIMEOUT_S) as connection:
            connection.sendall(struct.pack(">i", len(message)) + message)
            with connection.makefile("rb") as stream:
                size, _correlation_id = struct.unpack(">ii", stream.read(8))
                response = MetadataResponse_v2.decode(io.BytesIO(stream.read(size - 4)))
    except (OSError, struct.error, ValueError):
        return False
    # A broker lists itself among the live ones once it is registered.
    return bool(response.brokers) and bool(response.cluster_id == cluster_id)
