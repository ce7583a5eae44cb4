"""The versions of Spark that the listener is shown on, each with an environment of its own."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from uv import find_uv_bin

from scripts.check_pythons import installed_pythons, is_of
from sparklag_jobs.broker.maven import default_cache_dir
from tests.commands import succeed
from tests.spark_configuration import pyspark_environment

ROOT = Path(__file__).parents[2]
_REQUIREMENTS = ROOT / "requirements"
_HOOK = ROOT / "sparklag_auto" / "sparklag-auto.pth"
_BUILD_S = 840
_PACKAGES = ("schemas", "kafka", "offsets", "listener", "jobs")


@dataclass(frozen=True)
class Lane:
    """One version of Spark. `lock`: what its driver has; None: these tests' own environment."""

    spark: str
    lock: str | None = None
    python_version: str = ""
    """Its driver's, where this machine has it, else that of these tests."""

    def __str__(self) -> str:
        return self.spark

    def python(self) -> Path:
        """Its Python. The first time on a machine this downloads Spark, some 350 MB.

        Safe when several processes ask at once: one builds, the others wait for it.
        """
        if self.lock is None:
            return Path(sys.executable)
        base = self._base_python()
        name = f"spark-{self.spark}-{self._digest(self.lock, base)}"
        folder = default_cache_dir() / "lanes" / name
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_name(f"{folder.name}.lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            # A virtual environment cannot be moved: this file marks it as complete.
            if not (folder / "complete").is_file():
                shutil.rmtree(folder, ignore_errors=True)
                self._build(folder, self.lock, base)
                (folder / "complete").touch()
        return folder / "bin" / "python"

    def environment(self) -> dict[str, str]:
        """The driver's: only this tree's code. SPARK_LANES_JAVA_HOME names another Java."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "PYSPARK", "SPARK_HOME", "SPARKLAG_", "VIRTUAL_ENV"))
        }
        if java_home := os.environ.get("SPARK_LANES_JAVA_HOME"):
            kept["JAVA_HOME"] = java_home
        path = os.pathsep.join(str(ROOT / package) for package in (*_PACKAGES, ""))
        return {**kept, **pyspark_environment(), "PYTHONPATH": path}

    def run(self, code: str) -> str:
        return succeed(self.python(), "-c", code, env=self.environment(), timeout_s=_BUILD_S)

    def _base_python(self) -> str:
        pythons = installed_pythons()
        matching = [path for full, path in pythons.items() if is_of(full, self.python_version)]
        return matching[-1] if self.python_version and matching else sys.executable

    def _digest(self, lock: str, base: str) -> str:
        version = subprocess.check_output([base, "-c", "import sys; print(sys.version)"])
        parts = (_REQUIREMENTS / lock).read_bytes(), version, _HOOK.read_bytes()
        return hashlib.sha256(b"".join(parts)).hexdigest()[:12]

    def _build(self, folder: Path, lock: str, base: str) -> None:
        uv = find_uv_bin()
        succeed(uv, "venv", "-q", "--no-project", "--python", base, folder)
        sync = (uv, "pip", "sync", "-q", "--python", folder / "bin" / "python", "--require-hashes")
        constraints = ("--build-constraints", _REQUIREMENTS / "build.txt")
        succeed(*sync, *constraints, _REQUIREMENTS / lock, timeout_s=_BUILD_S)
        shutil.copy(_HOOK, next(folder.glob("lib/*/site-packages")))


LANES: tuple[Lane, ...] = (
    Lane("3.5.7", "spark-3.5.txt", "3.10"),
    Lane("4.0.0", "spark-4.0.txt", "3.11"),
    Lane("4.1.1", "spark-4.1.txt", "3.12"),
    Lane("4.2.0"),
    Lane("4.3.0", "spark-4.3.txt", "3.13"),
)
if sys.version_info < (3, 11):
    # No Spark 4.3 is for it.
    LANES = LANES[:-1]


def build_lanes() -> list[Path]:
    with ThreadPoolExecutor() as pool:
        return list(pool.map(_build_lane, LANES))


def _build_lane(lane: Lane) -> Path:
    lane.run("from tests.lanes.connector import connector_jars; connector_jars()")
    return lane.python().parents[1]
