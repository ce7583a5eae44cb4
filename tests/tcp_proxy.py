"""A TCP proxy on threads: connections that are cut or frozen on the way, and restored."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

_HOST = "127.0.0.1"
_CHUNK_BYTES = 64 * 1024


class TcpProxy:
    """A context manager. Passes connections to its own port on to `upstream`, of this machine."""

    def __init__(self, upstream: int = 0) -> None:
        self.upstream = upstream
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._flows = threading.Event()
        self._flows.set()
        self._is_cut = False
        self._server = socket.create_server((_HOST, 0))
        self.port = int(self._server.getsockname()[1])
        self.url = f"http://{_HOST}:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> TcpProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cut(self) -> None:
        """Close every connection, and each new one at once."""
        with self._lock:
            self._is_cut = True
            sockets, self._sockets = self._sockets, set()
        for each in sockets:
            _shut(each)

    def freeze(self) -> None:
        self._flows.clear()

    def restore(self) -> None:
        self._is_cut = False
        self._flows.set()

    def close(self) -> None:
        self.restore()
        _shut(self._server)
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            try:
                upstream = socket.create_connection((_HOST, self.upstream))
            except OSError:
                client.close()
                continue
            with self._lock:
                is_cut = self._is_cut
                if not is_cut:
                    self._sockets |= {client, upstream}
            if is_cut:
                client.close()
                upstream.close()
                continue
            for source, target in ((client, upstream), (upstream, client)):
                threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := self._read(source, target):
                self._flows.wait()
                target.sendall(data)
        for each in (source, target):
            _shut(each)
            with self._lock:
                self._sockets.discard(each)

    def _read(self, source: socket.socket, target: socket.socket) -> bytes:
        """What goes from `source` to `target` next; empty: nothing more."""
        return source.recv(_CHUNK_BYTES)


def _shut(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
