"""Grafana's dashboards, as values: what they ask, with their variables filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.deploy.manifests import DEPLOY

PATHS: Final = sorted((DEPLOY / "helm" / "sparklag" / "files").glob("*.json"))
_FILLED: Final = {"$cluster": ".*", "$job": ".*", "$query": "orders", "$__rate_interval": "1m"}


class Requested(NamedTuple):
    panel: str
    expression: str


def load(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions(dashboard: dict[str, Any]) -> Iterator[Requested]:
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield Requested(panel["title"], filled(target["expr"]))


def variables(dashboard: dict[str, Any]) -> dict[str, str]:
    return {
        variable["name"]: filled(variable["query"]["query"])
        for variable in dashboard["templating"]["list"]
        if variable["type"] == "query"
    }


def filled(expression: str) -> str:
    for name, value in sorted(_FILLED.items(), reverse=True):
        expression = re.sub(re.escape(name) + r"\b", value, expression)
    assert "$" not in expression, expression
    # That would be an answer where there is no data at all.
    assert "vector(" not in expression, expression
    return expression
