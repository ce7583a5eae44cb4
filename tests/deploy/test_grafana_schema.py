"""The dashboards by Grafana's own types, which it publishes as the package @grafana/schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.deploy import dashboards
from tests.node_programs import run_on_node

pytestmark = [pytest.mark.slow, pytest.mark.packaging]

_SCRIPT: Final = Path(__file__).parent / "grafana_schema" / "diagnostics.js"


def _diagnostics(paths: Sequence[Path]) -> dict[str, list[str]]:
    return dict(json.loads(run_on_node(_SCRIPT, *map(str, paths))))


def test_grafanas_types_have_every_field_of_the_dashboards() -> None:
    assert _diagnostics(dashboards.PATHS) == {path.name: [] for path in dashboards.PATHS}


def test_a_field_that_grafana_does_not_have_is_detected(tmp_path: Path) -> None:
    dashboard = dashboards.load(dashboards.PATHS[0])
    panel: dict[str, Any] = next(
        panel for panel in dashboards.panels(dashboard) if panel["type"] == "timeseries"
    )
    dashboard["refreshEvery"] = "15s"
    panel["options"]["legend"]["placement"] = "below"
    panel["fieldConfig"]["defaults"]["custom"] = {"lineWidths": 1}
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(dashboard))

    (result,) = _diagnostics([path]).values()
    for wrong in ("refreshEvery", "below", "lineWidths"):
        assert any(wrong in text for text in result), result
