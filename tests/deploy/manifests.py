"""What deploy/ holds, as values, and the tool that knows Kubernetes' own kinds."""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml
from uv import find_uv_bin

from sparklag_pipeline.broker.maven import default_cache_dir

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
RULES: Final = DEPLOY / "prometheus" / "sparklag.rules.yml"
KEDA: Final = sorted((DEPLOY / "keda").glob("*.yaml"))
HPA: Final = DEPLOY / "hpa" / "horizontal-pod-autoscaler.yaml"
ADAPTER: Final = DEPLOY / "hpa" / "prometheus-adapter-values.yaml"
SERVICE: Final = DEPLOY / "kubernetes" / "sparklag.yaml"
_LOCK: Final = Path(__file__).parents[2] / "requirements" / "kubernetes.txt"
_BUILD_S: Final = 600.0


def documents(path: Path) -> list[dict[str, Any]]:
    """The documents of a YAML file."""
    return [document for document in yaml.safe_load_all(path.read_text()) if document is not None]


def document(path: Path) -> dict[str, Any]:
    """Of a file that holds one."""
    (found,) = documents(path)
    return found


def triggers(path: Path) -> Iterator[dict[str, Any]]:
    """Of a ScaledObject."""
    yield from document(path)["spec"]["triggers"]


def rules(kind: str) -> list[dict[str, Any]]:
    """Those of Prometheus that `alert`, or that `record`."""
    return [rule for group in document(RULES)["groups"] for rule in group["rules"] if kind in rule]


def recorded() -> set[str]:
    """The series that the rules record."""
    return {rule["record"] for rule in rules("record")}


def recorded_series_in(expression: str) -> set[str]:
    """Those that an expression reads."""
    return set(re.findall(r"\b(?:instance_)?query:\w+:\w+", expression))


def adapter_query(rule: dict[str, Any], matchers: str) -> str:
    """What prometheus-adapter asks, for an HPA that selects by `matchers`."""
    asked: str = rule["metricsQuery"]
    return asked.replace("<<.Series>>", rule["seriesQuery"]).replace("<<.LabelMatchers>>", matchers)


def kubernetes_validate() -> Path:
    """The command, in an environment of its own: its schemas are 100 MB, got once."""
    digest = hashlib.sha256(_LOCK.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = default_cache_dir() / "kubernetes-validate" / digest
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{digest}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not (folder / "complete").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            uv, python = find_uv_bin(), str(folder / "bin" / "python")
            _succeed(uv, "venv", "-q", "--no-project", "--python", sys.executable, str(folder))
            _succeed(uv, "pip", "sync", "-q", "--python", python, "--require-hashes", str(_LOCK))
            (folder / "complete").touch()
    return folder / "bin" / "kubernetes-validate"


def _succeed(*command: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_BUILD_S, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
