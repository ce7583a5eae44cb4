"""The probes and the grace period of a Deployment, played on real processes as kubelet does."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final

import httpx

from tests.child_processes import Startable
from tests.faults.service_processes import READY_S, ServiceProcess
from tests.waiting import wait_for

# Kubernetes' own defaults.
_PERIOD_S: Final = 10.0
_TIMEOUT_S: Final = 1.0
_FAILURES: Final = 3


class Probe(Startable):
    """One probe of one instance, on a thread. Counts successes and failures in a row."""

    def __init__(self, instance: ServiceProcess, spec: Mapping[str, Any]) -> None:
        self._instance = instance
        self._path = spec["httpGet"]["path"]
        self._period_s = float(spec.get("periodSeconds", _PERIOD_S))
        self._timeout_s = float(spec.get("timeoutSeconds", _TIMEOUT_S))
        self._threshold = spec.get("failureThreshold", _FAILURES)
        self._in_a_row = 0
        self.attempts = 0
        self.succeeded = False
        """The last one."""
        self.failed = False
        """So often in a row that kubelet acts, at any time."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.succeeded = self._succeeds()
            self.attempts += 1
            self._in_a_row = 0 if self.succeeded else self._in_a_row + 1
            self.failed = self.failed or self._in_a_row >= self._threshold
            self._stop.wait(self._period_s)

    def _succeeds(self) -> bool:
        url = self._instance.url
        if url is None:
            return False
        try:
            return httpx.get(f"{url}{self._path}", timeout=self._timeout_s).is_success
        except httpx.TransportError:
            return False


class Pods(Startable):
    """Instances as pods of a Deployment: its `spec`. None of them may be restarted by a probe."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._pod = spec["template"]["spec"]
        (self._container,) = self._pod["containers"]
        self._liveness: dict[str, Probe] = {}
        self._running = ExitStack()
        self.startup_attempts = 0
        """The most that any instance took."""

    def start(self) -> None:
        """Instances come by `await_ready`."""

    def close(self) -> None:
        self._running.close()

    @property
    def restarted(self) -> list[str]:
        return [name for name, probe in self._liveness.items() if probe.failed]

    def await_ready(self, instance: ServiceProcess) -> None:
        """Until kubelet counts it as ready: the startup probe, then readiness, and liveness on."""
        with Probe(instance, self._container["startupProbe"]) as startup:
            wait_for(lambda: startup.succeeded, f"{instance.name} has started", READY_S)
        self.startup_attempts = max(self.startup_attempts, startup.attempts)
        liveness = Probe(instance, self._container["livenessProbe"])
        self._liveness[instance.name] = self._running.enter_context(liveness)
        with Probe(instance, self._container["readinessProbe"]) as readiness:
            wait_for(lambda: readiness.succeeded, f"{instance.name} is ready", READY_S)

    def end(self, instance: ServiceProcess) -> None:
        """SIGTERM; fails where kubelet would kill it after the grace period."""
        # Of one that ends it does not count.
        self._liveness.pop(instance.name)
        instance.terminate(self._pod["terminationGracePeriodSeconds"])
