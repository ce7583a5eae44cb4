"""Ports of this machine that nobody listens on now; somebody may by the time they are used."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from typing import Final

_LASTING: Final = range(20_000, 30_000)


def free_port() -> int:
    """One of them."""
    (port,) = free_ports(1)
    return port


def free_ports(count: int) -> list[int]:
    """So many different ones."""
    with ExitStack() as held:
        # All at once, so that they differ.
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def lasting_port() -> int:
    """One for a server that goes and comes back.

    It is below those that systems give to outgoing connections: a client that keeps trying while
    the server is away could otherwise be given the server's own, connect to itself, and keep the
    server from coming back.
    """
    for port in random.sample(_LASTING, 100):
        with socket.socket() as candidate:
            try:
                candidate.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"of {_LASTING} none is free")
