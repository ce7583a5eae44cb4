"""`sparklag serve` in a process of its own, and what the system says of that process."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from sparklag_jobs.broker.child_process import ChildProcess

READY_S: Final = 180.0
_ANSWER_S: Final = 300.0

Result = TypeVar("Result")


@dataclass(frozen=True)
class ServiceProcess:
    """A service that runs and answers at `url`."""

    pid: int
    url: str
    stalls: Path | None = None
    """Written by `watched_service`."""

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> bytes:
        """The body of an answer. Raises OSError: no answer, or that of an error."""
        request = urllib.request.Request(f"{self.url}{path}", headers=dict(headers or {}))
        with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:
            return bytes(answer.read())

    def health(self) -> Any:
        """Its readiness and counters. Raises OSError where it is not ready."""
        return json.loads(self.get("/health/ready"))

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

    def anonymous_mb(self) -> float:
        """That without the pages of files, which the system takes back as it likes."""
        return self._memory_mb("RssAnon")

    def proportional_mb(self) -> float:
        """All it holds, with its share of the pages that other processes hold too."""
        return self._memory_mb("Pss", "smaps_rollup")

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def longest_stall_ms(self, since: float, until: float) -> tuple[float, float]:
        """Between two times (epoch seconds), in CPU: the longest stall of its loop, and the longest
        of Python's garbage collections. Where it is watched."""
        within = [line for line in self._watched_lines() if since < line[0] <= until + 1]
        return max(line[1] for line in within), max(line[2] for line in within)

    def tasks(self) -> int:
        """How many tasks there were last. Where it is watched."""
        return int(self._watched_lines()[-1][3])

    def blocks_and_objects(self) -> tuple[int, int]:
        """How many blocks of memory Python had allocated last, and how many objects its garbage
        collector held. Where it is watched."""
        return int(self._watched_lines()[-1][4]), int(self._watched_lines()[-1][5])

    def _watched_lines(self) -> list[tuple[float, ...]]:
        if self.stalls is None:
            raise ValueError("this service is not watched")
        return [tuple(map(float, line.split())) for line in self.stalls.read_text().splitlines()]

    def _memory_mb(self, name: str, file: str = "status") -> float:
        status = Path(f"/proc/{self.pid}/{file}").read_text()
        found = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
        if found is None:
            raise RuntimeError("the system does not say how much memory a process takes")
        return int(found.group(1)) / 1024


@contextmanager
def service_process(
    bootstrap_servers: str,
    *,
    publish_interval_s: float,
    environment: Mapping[str, str] | None = None,
    watched: bool = False,
) -> Iterator[ServiceProcess]:
    """Start the service on a free port, with more settings in `environment`; end it on exit.

    `watched`: it says how long its loop was held, for a percent of CPU.
    """
    with tempfile.TemporaryDirectory() as folder:
        log_path, stalls = Path(folder) / "service.log", Path(folder) / "stalls"
        command = ["sparklag_service", "serve"]
        if watched:
            command = ["benchmarks.watched_service", str(stalls)]
        process = ChildProcess(
            "the service",
            [sys.executable, "-m", *command],
            log_path=log_path,
            environment={
                **{k: v for k, v in os.environ.items() if not k.startswith("SPARKLAG_")},
                "SPARKLAG_BOOTSTRAP_SERVERS": bootstrap_servers,
                "SPARKLAG_HTTP_PORT": "0",
                "SPARKLAG_PUBLISH_INTERVAL_S": str(publish_interval_s),
                # The benchmarks are no package that is installed.
                "PYTHONPATH": str(Path(__file__).parents[1]),
                **(environment or {}),
            },
            directory=Path(folder),
        )
        process.start()
        try:
            url = wait_for(lambda: _address_in(log_path, process))
            yield ServiceProcess(process.pid, url, stalls if watched else None)
        finally:
            process.stop()


def wait_for(
    find: Callable[[], Result | None], *, within_s: float = READY_S, pause_s: float = 0.1
) -> Result:
    """What `find` returns, once that is true. Raises TimeoutError.

    An OSError of `find` is of a service that does not answer yet.
    """
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        with suppress(OSError):
            if found := find():
                return found
        time.sleep(pause_s)
    raise TimeoutError(f"not ready after {within_s:g} s")


def _address_in(log_path: Path, process: ChildProcess) -> str | None:
    found = re.search(r"serving (http://[\w.:]+)", log_path.read_text())
    if found is None and not process.is_alive():
        raise RuntimeError(process.describe_end())
    return found.group(1) if found else None
