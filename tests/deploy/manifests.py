"""What deploy/ holds, as values, and the tool that knows Kubernetes' own kinds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from scripts.locked_environment import locked_environment

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
RULES: Final = DEPLOY / "prometheus" / "sparklag.rules.yml"
KEDA: Final = sorted((DEPLOY / "keda").glob("*.yaml"))
HPA: Final = DEPLOY / "hpa" / "horizontal-pod-autoscaler.yaml"
ADAPTER: Final = DEPLOY / "hpa" / "prometheus-adapter-values.yaml"
SERVICE: Final = DEPLOY / "kubernetes" / "sparklag.yaml"


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document is not None]


def document(path: Path) -> dict[str, Any]:
    (result,) = documents(path)
    return result


def triggers(path: Path) -> Iterator[dict[str, Any]]:
    yield from documents(path)[0]["spec"]["triggers"]


def rules(kind: str) -> list[dict[str, Any]]:
    return [rule for group in document(RULES)["groups"] for rule in group["rules"] if kind in rule]


def adapter_query(rule: dict[str, Any], matchers: str) -> str:
    requested: str = rule["metricsQuery"]
    return requested.replace("<<.Series>>", rule["seriesQuery"]).replace(
        "<<.LabelMatchers>>", matchers
    )


def kubernetes_validate() -> Path:
    """The command, in an environment of its own: its schemas are 100 MB, got once."""
    return locked_environment("kubernetes") / "bin" / "kubernetes-validate"
