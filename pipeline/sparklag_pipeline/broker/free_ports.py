"""Ports of this machine that nobody listens on now; somebody may by the time they are used.

They are below those that systems give to outgoing connections: of those another process may be
given one before it is used. A client that keeps trying while a server is away could even be given
the server's own, connect to itself, and keep the server from coming back.
"""

from __future__ import annotations

import random
import socket
from typing import Final

_RANGE: Final = range(20_000, 30_000)


def free_port() -> int:
    """One of them."""
    (port,) = free_ports(1)
    return port


def free_ports(count: int) -> list[int]:
    """So many different ones."""
    ports: list[int] = []
    for port in random.sample(_RANGE, 100 * count):
        with socket.socket() as candidate:
            try:
                candidate.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError(f"of {_RANGE} too few are free")
