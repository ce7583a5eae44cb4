"""Ports of this machine on which nobody listens now; somebody may by the time they are used.

They are below the range that systems use for outgoing connections. A port of that range may be
given to another process before it is used; a client that retries while a server is away could even
get the server's own port, connect to itself, and keep the server from coming back.
"""

from __future__ import annotations

import random
import socket
from typing import Final

_RANGE: Final = range(20_000, 30_000)


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Different ones. Raises OSError where too few are free."""
    ports: list[int] = []
    for port in random.sample(_RANGE, 100 * count):
        if len(ports) < count and is_free(port):
            ports.append(port)
    if len(ports) < count:
        raise OSError(f"of {_RANGE} too few are free")
    return ports


def is_free(port: int) -> bool:
    """Whether a server can listen there now, on loopback."""
    with socket.socket() as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
    return True
