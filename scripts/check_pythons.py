"""Runs `make check` on each Python 3.10 to 3.14 of this machine: `check_pythons.py [VERSION ...]`.

Each has an environment of its own, `.cache/pythons/<version>`, and the whole output of its run in
the file beside that. Versions ("3.11", "3.12.1") name those to run, else all. Prints one line for
each Python and exits 1 where one failed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parent.parent
_ENVIRONMENTS: Final = Path(".cache/pythons")
_MINOR_VERSIONS: Final = ("3.10", "3.11", "3.12", "3.13", "3.14")
_INTERRUPTED: Final = 130
_END_DEADLINE_S: Final = 30.0


def main() -> int:
    pythons = installed_pythons()
    for minor in _MINOR_VERSIONS:
        if not any(is_of(version, minor) for version in pythons):
            print(f"{minor}: not found on this machine", flush=True)
    wanted = sys.argv[1:] or _MINOR_VERSIONS
    chosen = [v for v in pythons if any(is_of(v, name) for name in wanted)]
    if not chosen:
        print(f"no Python of {', '.join(wanted)} to check", flush=True)
        return 1
    failures = sum(not passes(version, pythons[version]) for version in chosen)
    return 1 if failures else 0


def is_of(version: str, name: str) -> bool:
    return f"{version}.".startswith(f"{name}.")


def installed_pythons() -> dict[str, str]:
    """Full version to executable: those on the PATH, of the system and of pyenv."""
    folders = [os.environ["PATH"], "/usr/bin", "/usr/local/bin"]
    if shutil.which("pyenv"):
        root = subprocess.check_output(["pyenv", "root"], text=True).strip()
        # Before its shims, which are other Pythons in other folders.
        folders[:0] = map(str, Path(root, "versions").glob("3.1[0-4].*/bin"))
    listing = subprocess.check_output(
        [
            *(Path(sys.executable).with_name("uv"), "python", "list", "--only-installed"),
            *("--output-format", "json", ">=3.10,<3.15"),
        ],
        env=os.environ | {"PATH": os.pathsep.join(folders)},
    )
    executables: dict[str, str] = {}
    # Listed from the newest on, and what is first on the PATH before another of that version.
    for python in reversed(json.loads(listing)):
        if (python["implementation"], python["variant"]) == ("cpython", "default"):
            executables[python["version"]] = python["path"]
    return executables


def passes(version: str, python: str) -> bool:
    environment = _ENVIRONMENTS / version
    log = environment.with_name(f"{version}.log")
    (_ROOT / _ENVIRONMENTS).mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with (_ROOT / log).open("wb") as output:
        run = subprocess.Popen(
            ["make", "check", f"VENV={environment}", f"PYTHON={python}"],
            cwd=_ROOT,
            env={name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
            | {"MYPY_CACHE_DIR": str(environment / ".mypy_cache")},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            failed = run.wait() != 0
        except KeyboardInterrupt:
            end(run)
            raise
    seconds = time.monotonic() - started
    why = f": {last_line(_ROOT / log)}" if failed else ""
    result = "failed" if failed else "passed"
    print(f"{version}: {result} in {seconds:.0f} s ({log}){why}", flush=True)
    return not failed


def end(run: subprocess.Popen[bytes]) -> None:
    """What it started is in its process group."""
    os.killpg(run.pid, signal.SIGINT)
    try:
        run.wait(_END_DEADLINE_S)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()


def last_line(log: Path) -> str:
    """The last line that is not make's own."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line for line in reversed(lines) if line and not line.startswith("make")), "")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
