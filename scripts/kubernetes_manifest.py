"""deploy/kubernetes/sparklag.yaml, as the chart renders it, without what only Helm needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from scripts.helm import CHART, run_helm

PATH: Final = Path(__file__).parents[1] / "deploy" / "kubernetes" / "sparklag.yaml"
_VALUES: Final = CHART.with_name("manifest-values.yaml")
_HEADING: Final = """\
# Written by `make manifests` from deploy/helm, for those who use kubectl alone.
# The service: two instances that share the queries, and each answer for all of them. They keep no
# state of their own; what they need to know is on Kafka.
"""
_OF_HELM: Final = re.compile(
    r" +annotations:\n +checksum/settings: .*\n"
    r"| +(helm\.sh/chart|app\.kubernetes\.io/(instance|managed-by|version)): .*\n"
    r"|# Source: .*\n|(?<=\n)\n"
)


def manifest() -> str:
    """The text of the file. Raises HelmMissing."""
    rendered = run_helm("template", "sparklag", CHART, "--values", _VALUES)
    if rendered.returncode != 0:
        raise ValueError(rendered.stderr)
    return _HEADING + _OF_HELM.sub("", rendered.stdout).removeprefix("---\n")


if __name__ == "__main__":
    PATH.write_text(manifest(), encoding="utf-8")
