"""A real Prometheus, a real Alertmanager, and a receiver of its webhooks; gone on exit."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import httpx
import yaml

from sparklag_pipeline.child_process import ChildProcess
from tests.deploy.programs import Programs
from tests.free_ports import free_port, free_ports
from tests.waiting import wait_for

HOST: Final = "127.0.0.1"
_START_S: Final = 120.0
_ASK_S: Final = 60.0


class _Server:
    """A process with an HTTP interface; its folder holds its configuration, data and log."""

    def __init__(self, name: str, folder: Path, port: int) -> None:
        self.folder = folder
        self.address = f"{HOST}:{port}"
        self._name = name
        self._process: ChildProcess | None = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.stop()

    def _start(self, command: Sequence[str | Path]) -> None:
        process = ChildProcess(
            self._name, [str(part) for part in command], log_path=self.folder / f"{self._name}.log"
        )
        self._process = process
        process.start()
        try:
            wait_for(lambda: self._is_ready(process), f"{self._name} is ready", _START_S)
        except BaseException:
            process.stop()
            raise

    def _is_ready(self, process: ChildProcess) -> bool:
        assert process.is_alive(), process.describe_end()
        try:
            return httpx.get(f"http://{self.address}/-/ready", timeout=_ASK_S).is_success
        except httpx.HTTPError:
            return False


class PrometheusServer(_Server):
    """Scrapes, and judges by rules. `configuration` is prometheus.yml as values."""

    def __init__(self, programs: Programs, folder: Path, configuration: Mapping[str, Any]) -> None:
        super().__init__("prometheus", folder, free_port())
        self._programs = programs
        self._configuration = configuration

    def __enter__(self) -> PrometheusServer:
        path = self.folder / "prometheus.yml"
        path.write_text(yaml.safe_dump(dict(self._configuration)))
        self._start(
            [
                self._programs.prometheus,
                f"--config.file={path}",
                f"--storage.tsdb.path={self.folder / 'data'}",
                f"--web.listen-address={self.address}",
                "--log.level=warn",
            ]
        )
        return self

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an instant query, now."""
        found: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return found

    def value(self, expression: str) -> float | None:
        """Of its only sample; None where there is none, or more."""
        found = self.query(expression)
        return float(found[0]["value"][1]) if len(found) == 1 else None

    def label_values(self, label: str, match: str) -> list[str]:
        """Values of a label among the series that match."""
        found: list[str] = self._get(f"label/{label}/values", **{"match[]": match})
        return found

    def targets(self) -> list[dict[str, Any]]:
        """What it scrapes: `labels`, `health` and more of each."""
        found: list[dict[str, Any]] = self._get("targets", state="active")["activeTargets"]
        return found

    def alerts(self) -> dict[str, str]:
        """Those that are pending or firing: name to state, the worse of several."""
        found: dict[str, str] = {}
        for alert in self._get("alerts")["alerts"]:
            name = alert["labels"]["alertname"]
            if found.get(name) != "firing":
                found[name] = alert["state"]
        return found

    def _get(self, path: str, **parameters: Any) -> Any:
        answer = httpx.get(
            f"http://{self.address}/api/v1/{path}", params=parameters, timeout=_ASK_S
        ).json()
        assert answer["status"] == "success", f"{path} {parameters}: {answer.get('error')}"
        return answer["data"]


class AlertmanagerServer(_Server):
    """Groups alerts, and tells who is to know. `configuration` is alertmanager.yml as values."""

    def __init__(self, programs: Programs, folder: Path, configuration: Mapping[str, Any]) -> None:
        super().__init__("alertmanager", folder, free_port())
        self._programs = programs
        self._configuration = configuration

    def __enter__(self) -> AlertmanagerServer:
        path = self.folder / "alertmanager.yml"
        path.write_text(yaml.safe_dump(dict(self._configuration)))
        self._start(
            [
                self._programs.alertmanager,
                f"--config.file={path}",
                f"--storage.path={self.folder / 'data'}",
                f"--web.listen-address={self.address}",
                # Alone: else it looks for others.
                "--cluster.listen-address=",
            ]
        )
        return self


class Webhook:
    """Takes what Alertmanager posts."""

    def __init__(self) -> None:
        received = self._received = []  # type: list[dict[str, Any]]

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                received.append(json.loads(self.rfile.read(length)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        (port,) = free_ports(1)
        self._server = ThreadingHTTPServer((HOST, port), Handler)
        self.url = f"http://{HOST}:{port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Webhook:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def alerts(self, name: str, status: str) -> list[dict[str, Any]]:
        """Those of that name that were told as `firing` or `resolved`."""
        return [
            alert
            for message in list(self._received)
            for alert in message["alerts"]
            if alert["labels"]["alertname"] == name and alert["status"] == status
        ]
