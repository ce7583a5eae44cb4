"""`sparklag-run COMMAND ...`: runs the command, and observes every Spark session in it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final

_USAGE: Final = """\
usage: sparklag-run COMMAND [ARGUMENT ...]

Runs COMMAND with SPARKLAG_AUTO=1: every Spark session that it starts is observed, without a change
to its code. sparklag has to be installed for the Python that runs the driver.

  sparklag-run spark-submit --conf spark.sparklag.bootstrapServers=broker:9092 job.py
  sparklag-run python job.py
"""
_NOT_FOUND: Final = 127
_NOT_EXECUTABLE: Final = 126
_IN_CLUSTER: Final = (
    "--conf=spark.kubernetes.driverEnv.SPARKLAG_AUTO=1",
    "--conf=spark.yarn.appMasterEnv.SPARKLAG_AUTO=1",
)
"""Options that set the variable where spark-submit starts the driver on another machine."""
_HAS_HOOK: Final = (
    "import sys; sys.exit(0 if 'SparklagAuto' in map(lambda f: type(f).__name__, sys.meta_path)"
    " else 3)"
)
"""Run by a Python that reads `sparklag-auto.pth`."""


def main() -> int:
    """The entry point: replaces this process, or returns an exit code."""
    command = sys.argv[1:]
    if command[:1] == ["--"]:
        del command[0]
    if not command or command[0] in ("-h", "--help"):
        (sys.stdout if command else sys.stderr).write(_USAGE)
        return 0 if command else 2
    environ = {**os.environ, "SPARKLAG_AUTO": "1"}
    _warn_without_hook(command, environ)
    if PurePath(command[0]).name.removesuffix(".cmd") == "spark-submit":
        command[1:1] = _IN_CLUSTER
    try:
        if os.name == "nt":  # exec would not wait there, and runs no .cmd
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command gets it too
            command[0] = shutil.which(command[0]) or command[0]
            return subprocess.run(command, env=environ, check=False).returncode
        os.execvpe(command[0], command, environ)
    except OSError as error:
        sys.stderr.write(f"sparklag-run: {command[0]} cannot be run: {error.strerror}\n")
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE


def _warn_without_hook(command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Warn where the driver's Python is known and lacks sparklag: nothing would be observed."""
    name = PurePath(command[0]).name.removesuffix(".cmd")
    if name in ("spark-submit", "pyspark", "spark-pipelines"):
        python = environ.get("PYSPARK_DRIVER_PYTHON") or environ.get("PYSPARK_PYTHON") or "python3"
    elif name.startswith("python"):
        python = command[0]
    else:
        return
    path = shutil.which(python)
    if path is None or any("pyspark.driver.python" in part for part in command):
        return
    # Errors of this Python are shown: the driver would have them too.
    done = subprocess.run(
        [path, "-c", _HAS_HOOK], env=environ, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode == 3:
        sys.stderr.write(
            f"sparklag-run: {path} has no sparklag, so its sessions are not observed:"
            f" {path} -m pip install sparklag (in a clone: {path} -m pip install .)\n"
        )
