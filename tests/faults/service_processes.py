"""Instances of `sparklag serve`, each a process of its own: killed, frozen, restarted."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from sparklag_jobs.broker.child_process import ChildProcess, stop_all
from tests.child_processes import freeze, thaw
from tests.waiting import wait_for

READY_S: Final = 240.0
"""Importing everything takes seconds, and on a busy machine many."""
_STOP_S: Final = 60.0
_ANSWER_S: Final = 20.0


class ServiceProcess:
    """One instance. Its log is kept over restarts."""

    def __init__(self, name: str, folder: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self._log_path = folder / f"{name}.log"
        self._log_start = 0
        self._process = ChildProcess(
            name,
            [sys.executable, "-m", "sparklag_service", "serve", "--http-port", "0"],
            log_path=self._log_path,
            environment=environment,
            # Where no sparklag.toml is.
            directory=folder,
        )

    @property
    def process(self) -> ChildProcess:
        return self._process

    @property
    def url(self) -> str | None:
        result = re.search(r"serving (http://[\w.:]+)", self.log())
        return None if result is None else result.group(1)

    def log(self) -> str:
        if not self._log_path.exists():
            return ""
        with self._log_path.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode(errors="replace")

    def start(self) -> None:
        self._log_start = self._log_path.stat().st_size if self._log_path.exists() else 0
        self._process.start()

    def is_ready(self) -> bool:
        assert self._process.is_alive(), self._process.describe_end()
        url = self.url
        if url is None:
            return False
        try:
            return httpx.get(f"{url}/health/ready", timeout=_ANSWER_S).is_success
        except httpx.TransportError:
            return False

    def await_ready(self) -> None:
        wait_for(self.is_ready, f"{self.name} is ready", READY_S)

    def lag(self, query_id: str) -> dict[str, Any] | None:
        if self.url is None:
            return None
        try:
            answer = httpx.get(f"{self.url}/lag/{query_id}", timeout=_ANSWER_S)
        except httpx.TransportError:
            return None
        return answer.json() if answer.is_success else None

    def kill(self) -> None:
        self._process.kill()

    def terminate(self, grace_s: float = _STOP_S) -> None:
        """SIGTERM, and gone within its own deadline; fails where it must be killed."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(grace_s), f"{self.name} does not end on SIGTERM"
        self._process.stop()

    def freeze(self) -> None:
        freeze(self._process)

    def thaw(self) -> None:
        thaw(self._process)


class ServiceGroup:
    """Instances that share the work. `settings` are named as in the environment, lower case."""

    def __init__(
        self, folder: Path, settings: Mapping[str, object], environment: Mapping[str, str]
    ) -> None:
        self._folder = folder
        self._environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("SPARKLAG_")},
            **{f"SPARKLAG_{name.upper()}": str(value) for name, value in settings.items()},
            **environment,
        }
        self.instances: list[ServiceProcess] = []

    def add(self) -> ServiceProcess:
        name = f"service-{len(self.instances) + 1}"
        instance = ServiceProcess(name, self._folder, self._environment)
        self.instances.append(instance)
        instance.start()
        return instance

    def start(self, count: int) -> Sequence[ServiceProcess]:
        started = [self.add() for _ in range(count)]
        for instance in started:
            instance.await_ready()
        return started

    @property
    def running(self) -> list[ServiceProcess]:
        return [one for one in self.instances if one.process.is_alive()]

    def log_ends(self) -> str:
        return "\n".join(
            f"the end of {one.process.log_path}:\n{one.process.log_end(30)}"
            for one in self.instances
        )


@contextmanager
def service_group(
    folder: Path, settings: Mapping[str, object], environment: Mapping[str, str] | None = None
) -> Iterator[ServiceGroup]:
    """A group of no instances yet; afterwards none is left. A failure prints their logs."""
    group = ServiceGroup(folder, settings, environment or {})
    try:
        yield group
    except BaseException:
        sys.stderr.write(group.log_ends())
        raise
    finally:
        stop_all([one.process for one in group.instances])
