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


def diagnostics(*documents: Path, worst: int) -> list[list[dict[str, Any]]]:
    """Of each, what the parser says that is as bad as that, or worse."""
    said = json.loads(run_on_node(_SCRIPT, *map(str, documents)))
    return [[one for one in found if one["severity"] <= worst] for found in said]


def test_the_parser_finds_neither_errors_nor_warnings() -> None:
    assert diagnostics(DOCUMENT, worst=_WARNING) == [[]]


def test_each_broken_document_is_refused(tmp_path: Path) -> None:
    broken = []
    for breaking in (
        _message_of_another_topic,
        _reference_to_nothing,
        _cleanup_that_kafka_does_not_know,
        _misspelt_field,
        _avro_without_a_type,
    ):
        api = json.loads(DOCUMENT.read_text(encoding="utf-8"))
        breaking(api)
        broken.append(tmp_path / f"{breaking.__name__}.json")
        broken[-1].write_text(json.dumps(api), encoding="utf-8")
    found = diagnostics(*broken, worst=_ERROR)
    assert [path.stem for path, said in zip(broken, found, strict=True) if not said] == []


def _message_of_another_topic(api: dict[str, Any]) -> None:
    api["operations"]["sendLagEvents"]["messages"] = [
        {"$ref": "#/channels/processedOffsets/messages/Observation"}
    ]


def _reference_to_nothing(api: dict[str, Any]) -> None:
    api["components"]["messages"]["LagEvent"]["payload"] = {"$ref": "#/components/schemas/Lag"}


def _cleanup_that_kafka_does_not_know(api: dict[str, Any]) -> None:
    binding = api["channels"]["consumerLag"]["bindings"]["kafka"]
    binding["topicConfiguration"]["cleanup.policy"] = ["sometimes"]


def _misspelt_field(api: dict[str, Any]) -> None:
    api["channels"]["consumerLag"]["adress"] = "consumer-lag"


def _avro_without_a_type(api: dict[str, Any]) -> None:
    api["components"]["messages"]["LagEvent"]["payload"] = {
        "schemaFormat": "application/vnd.apache.avro+json;version=1.9.0",
        "schema": {"type": "record", "name": "LagEvent", "fields": [{"name": "lag"}]},
    }
