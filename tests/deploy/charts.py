"""The chart, rendered by the real Helm: its values in, Kubernetes' documents out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import yaml

from scripts.helm import CHART, VERSIONS, run_helm

Values = Mapping[str, Any]
Document = dict[str, Any]


def _values(name: str) -> Values:
    return dict(yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text()))


DEFAULTS: Final = _values("defaults")
SECURED: Final = _values("secured")
AUTOSCALING: Final = _values("autoscaling")
EVERYTHING: Final = _values("everything")
SETS: Final[Mapping[str, Values]] = {
    "defaults": DEFAULTS,
    "one replica": {**DEFAULTS, "replicaCount": 1},
    "secured": SECURED,
    "autoscaling": AUTOSCALING,
    "everything": EVERYTHING,
}


def render(values: Values, major: int = VERSIONS[-1]) -> list[Document]:
    done = run_helm("template", "sparklag", CHART, "--namespace", "lag", values=values, major=major)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each is not None]


def of_kind(documents: list[Document], kind: str) -> Document:
    (document,) = [each for each in documents if each["kind"] == kind]
    return document
