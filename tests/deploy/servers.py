"""A real Prometheus and a real Alertmanager; gone on exit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from sparklag_jobs.broker.child_process import ChildProcess, free_port
from tests.child_processes import running
from tests.deploy.programs import Programs
from tests.waiting import wait_until_up

_START_S: Final = 120.0
_ASK_S: Final = 60.0


@contextmanager
def prometheus(
    programs: Programs, folder: Path, configuration: Mapping[str, Any]
) -> Iterator[PrometheusServer]:
    """Scrapes, and judges by rules. `configuration` is prometheus.yml as values."""
    data = f"--storage.tsdb.path={folder / 'data'}"
    command = [str(programs.prometheus), data, "--log.level=warn"]
    with _running("prometheus", command, folder, configuration) as address:
        yield PrometheusServer(address)


@contextmanager
def alertmanager(
    programs: Programs, folder: Path, configuration: Mapping[str, Any]
) -> Iterator[str]:
    """Yields its address. `configuration` is alertmanager.yml as values."""
    # Alone: else it looks for others.
    options = (f"--storage.path={folder / 'data'}", "--cluster.listen-address=")
    command = [str(programs.alertmanager), *options]
    with _running("alertmanager", command, folder, configuration, programs.root) as address:
        yield address


@contextmanager
def _running(
    name: str,
    command: Sequence[str],
    folder: Path,
    configuration: Mapping[str, Any],
    directory: Path | None = None,
) -> Iterator[str]:
    """Yields a process's address. Its files are in its folder; it runs in `directory`, if given."""
    address = f"127.0.0.1:{free_port()}"
    path = folder / f"{name}.yml"
    path.write_text(yaml.safe_dump(dict(configuration)))
    options = (f"--config.file={path}", f"--web.listen-address={address}")
    process = ChildProcess(
        name, [*command, *options], log_path=folder / f"{name}.log", directory=directory
    )
    with running(process):
        wait_until_up([process], lambda: _is_ready(address), _START_S)
        yield address


def _is_ready(address: str) -> bool:
    try:
        return httpx.get(f"http://{address}/-/ready", timeout=_ASK_S).is_success
    except httpx.HTTPError:
        return False


class PrometheusServer:
    def __init__(self, address: str) -> None:
        self._address = address

    def query(self, expression: str) -> list[dict[str, Any]]:
        return list(self._get("query", query=expression)["result"])

    def value(self, expression: str) -> float | None:
        result = self.query(expression)
        return float(result[0]["value"][1]) if len(result) == 1 else None

    def label_values(self, label: str, match: str) -> list[str]:
        return list(self._get(f"label/{label}/values", **{"match[]": match}))

    def targets(self) -> list[dict[str, Any]]:
        return list(self._get("targets", state="active")["activeTargets"])

    def alerts(self) -> dict[str, str]:
        """Those that are pending or firing: name to state, the worse of several."""
        result: dict[str, str] = {}
        for alert in self._get("alerts")["alerts"]:
            name = alert["labels"]["alertname"]
            if result.get(name) != "firing":
                result[name] = alert["state"]
        return result

    def _get(self, path: str, **parameters: Any) -> Any:
        answer = httpx.get(
            f"http://{self._address}/api/v1/{path}", params=parameters, timeout=_ASK_S
        ).json()
        assert answer["status"] == "success", f"{path} {parameters}: {answer.get('error')}"
        return answer["data"]
