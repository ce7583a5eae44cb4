"""The AsyncAPI document, as AsyncAPI's own parser sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from scripts.schema_documents import FOLDER
from tests.node_programs import run_on_node

pytestmark = pytest.mark.packaging

DOCUMENT: Final = FOLDER / "asyncapi.json"
_SCRIPT: Final = Path(__file__).parent / "asyncapi_parser" / "diagnostics.js"
_ERROR, _WARNING = 0, 1


def diagnostics(document: Path, *, worst: int) -> list[dict[str, Any]]:
    (result,) = json.loads(run_on_node(_SCRIPT, str(document)))
    return [each for each in result if each["severity"] <= worst]


def test_the_parser_reports_neither_errors_nor_warnings() -> None:
    assert diagnostics(DOCUMENT, worst=_WARNING) == []


def test_a_reference_to_nothing_is_an_error(tmp_path: Path) -> None:
    api = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    api["components"]["messages"]["LagEvent"]["payload"] = {"$ref": "#/components/schemas/Lag"}
    broken = tmp_path / "asyncapi.json"
    broken.write_text(json.dumps(api), encoding="utf-8")
    assert diagnostics(broken, worst=_ERROR) != []
