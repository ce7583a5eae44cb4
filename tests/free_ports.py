"""Ports of this machine that nobody listens on now; somebody may by the time they are used."""

from __future__ import annotations

import socket
from contextlib import ExitStack


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
