"""A real Toxiproxy before a broker: the connection cut, delayed, black-holed and healed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from sparklag_jobs.broker.child_process import ChildProcess, free_port
from tests.child_processes import Startable
from tests.waiting import wait_for

_HOST: Final = "127.0.0.1"
_START_ATTEMPTS: Final = 3
_START_S: Final = 60.0
_DIRECTIONS: Final = ("upstream", "downstream")


class Toxiproxy(Startable):
    def __init__(self, server: Path, folder: Path) -> None:
        self._server = server
        self._log_path = folder / "toxiproxy.log"
        self._process: ChildProcess | None = None
        self._api = httpx.Client(timeout=30.0)

    def start(self) -> None:
        for attempt in range(1, _START_ATTEMPTS + 1):
            if self._start():
                return
            assert attempt < _START_ATTEMPTS, self._described()

    def close(self) -> None:
        self._api.close()
        if self._process is not None:
            self._process.stop()

    def proxy(self, name: str) -> Proxy:
        nowhere = {"name": name, "listen": f"{_HOST}:0", "upstream": f"{_HOST}:1"}
        made = self.call("POST", "/proxies", nowhere)
        return Proxy(self, name, str(made["listen"]))

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        answer = self._api.request(method, path, json=None if body is None else dict(body))
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else {}

    def _start(self) -> bool:
        """Whether it came up: its port may be another's by then."""
        port = free_port()
        command = [str(self._server), "-host", _HOST, "-port", str(port)]
        process = ChildProcess("Toxiproxy", command, log_path=self._log_path)
        self._process = process
        self._api.base_url = httpx.URL(f"http://{_HOST}:{port}")
        process.start()
        wait_for(lambda: self._answers() or not process.is_alive(), "Toxiproxy answers", _START_S)
        return process.is_alive()

    def _answers(self) -> bool:
        try:
            return self._api.get("/version").is_success
        except httpx.TransportError:
            return False

    def _described(self) -> str:
        return "" if self._process is None else self._process.describe_end()


class Proxy:
    def __init__(self, server: Toxiproxy, name: str, address: str) -> None:
        self._server = server
        self._name = name
        self.address = address
        """host:port that clients connect to: it stays."""

    def lead_to(self, upstream: str) -> None:
        self._set(upstream=upstream)

    def cut(self) -> None:
        self._set(enabled=False)

    def delay(self, seconds: float) -> None:
        """Hold back every answer so long; requests go through as they are."""
        latency = {"latency": int(seconds * 1000), "jitter": 0}
        self._add("delay", "latency", "downstream", latency)

    def swallow(self) -> None:
        """Black-hole: connections stay open, new ones are taken, and nothing comes through."""
        for direction in _DIRECTIONS:
            self._add(f"swallow-{direction}", "timeout", direction, {"timeout": 0})

    def heal(self) -> None:
        for toxic in self._server.call("GET", f"/proxies/{self._name}")["toxics"]:
            self._server.call("DELETE", f"/proxies/{self._name}/toxics/{toxic['name']}")
        self._set(enabled=True)

    def _set(self, **fields: Any) -> None:
        self._server.call("POST", f"/proxies/{self._name}", {"listen": self.address, **fields})

    def _add(self, name: str, kind: str, direction: str, attributes: Mapping[str, Any]) -> None:
        toxic = {"name": name, "type": kind, "stream": direction, "attributes": dict(attributes)}
        self._server.call("POST", f"/proxies/{self._name}/toxics", toxic)
