"""`sparklag serve` in a process of its own, and what the system says of that process."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from sparklag_pipeline.broker.child_process import ChildProcess

READY_S: Final = 180.0

Result = TypeVar("Result")


@dataclass(frozen=True)
class ServiceProcess:
    """A service that runs and answers at `url`."""

    pid: int
    url: str

    def cpu_s(self) -> float:
        """CPU seconds it has taken so far."""
        # After the command, which may hold blanks: utime and stime are fields 14 and 15.
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mb(self) -> float:
        """The most memory it has held."""
        return self._memory_mb("VmHWM")

    def held_mb(self) -> float:
        """The memory it holds now."""
        return self._memory_mb("VmRSS")

    def _memory_mb(self, name: str) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        if found is None:
            raise RuntimeError("the system does not say how much memory a process takes")
        return int(found.group(1)) / 1024


@contextmanager
def service_process(
    bootstrap_servers: str,
    *,
    publish_interval_s: float,
    environment: Mapping[str, str] | None = None,
) -> Iterator[ServiceProcess]:
    """Start the service on a free port, with more settings in `environment`; end it on exit."""
    with tempfile.TemporaryDirectory() as folder:
        log_path = Path(folder) / "service.log"
        process = ChildProcess(
            "the service",
            [
                *(sys.executable, "-m", "sparklag_service", "serve"),
                *("--bootstrap-servers", bootstrap_servers, "--http-port", "0"),
            ],
            log_path=log_path,
            environment={
                **{k: v for k, v in os.environ.items() if not k.startswith("SPARKLAG_")},
                "SPARKLAG_PUBLISH_INTERVAL_S": str(publish_interval_s),
                **(environment or {}),
            },
            directory=Path(folder),
        )
        process.start()
        try:
            url = wait_for(lambda: _address_in(log_path, process))
            yield ServiceProcess(process.pid, url)
        finally:
            process.stop()


def wait_for(find: Callable[[], Result | None]) -> Result:
    """What `find` returns, once that is not None. Raises TimeoutError."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        found = find()
        if found is not None:
            return found
        time.sleep(0.1)
    raise TimeoutError(f"not ready after {READY_S:g} s")


def _address_in(log_path: Path, process: ChildProcess) -> str | None:
    found = re.search(r"serving (http://\S+)", log_path.read_text())
    if found is None and not process.is_alive():
        raise RuntimeError(process.describe_end())
    return found.group(1) if found else None
