"""A new field of a lag event needs its type and the line that computes it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.commands import succeed

ROOT = Path(__file__).parents[1]
COPIED = ("schemas/sparklag_schemas", "service/sparklag_service", "scripts")
FIELD = '''\
    mood: Name | None = None
    """How the partition feels."""
'''

WHERE_IT_ARRIVES = """
import asyncio
import json
from io import BytesIO

import fastavro
from msgspec.structs import replace

from scripts.reference_pages import pages
from scripts.schema_documents import json_schema
from sparklag_schemas import LagEvent, PartitionRecord, Settings, decode_lag_event, encode
from sparklag_schemas.avro.schema import schema_of
from sparklag_schemas.codec import converted
from sparklag_service.publishing.published_query import PartitionChanges, partition_changed
from sparklag_service.view.view import Entry
from tests.service.pipelines import pipeline_of
from tests.service.rest_client import rest_client
from tests.service.states import evaluated, only, offsets_at, state


def through_avro(message):
    buffer = BytesIO()
    parsed = schema_of(type(message)).parsed
    fastavro.schemaless_writer(buffer, parsed, json.loads(encode(message)))
    buffer.seek(0)
    return converted(fastavro.schemaless_reader(buffer, parsed, None), type(message))


event = evaluated(state(), offsets_at({0: 70}))
(change,) = PartitionChanges(60.0).due(event, 0.0)


async def answered():
    pipeline = pipeline_of(Settings())
    pipeline.view.put(Entry(event, encode(event), 0.0, 0, 0))
    async with rest_client(pipeline) as client:
        return (await client.get("/lag/orders")).json()


document = asyncio.run(answered())
print(json.dumps({
    "evaluation": only(event).mood,
    "JSON": only(decode_lag_event(encode(event))).mood,
    "Avro": only(through_avro(event)).mood,
    "partition record": change.record.mood,
    "partition record in Avro": through_avro(change.record).mood,
    "a change is noticed": partition_changed(only(event), replace(only(event), mood="other")),
    "REST": document["topics"][0]["partitions"][0]["mood"],
    "JSON Schema": json_schema(LagEvent)["$defs"]["PartitionLag"]["properties"]["mood"],
    "its page": "How the partition feels." in pages()["lag_event.md"],
    "the record's page": "How the partition feels." in pages()["partition_record.md"],
}))
"""


@pytest.fixture
def changed_packages(tmp_path: Path) -> Path:
    """Copies of the packages, with the field added as `docs/architecture.md` has it."""
    for folder in COPIED:
        shutil.copytree(ROOT / folder, tmp_path / folder)
    schemas = tmp_path / "schemas" / "sparklag_schemas"
    insert(schemas / "messages" / "lag_event.py", "\n\nclass TopicLag(", before=FIELD)
    service = tmp_path / "service" / "sparklag_service"
    insert(
        service / "evaluation" / "topic_measure.py",
        "partition=number,",
        before='mood=f"calm at {at}",\n',
    )
    return tmp_path


def insert(file: Path, place: str, *, before: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(place) == 1
    file.write_text(text.replace(place, before + place), encoding="utf-8")


def test_a_new_field_of_a_partition_arrives_everywhere(changed_packages: Path) -> None:
    copies = [changed_packages / Path(folder).parent for folder in COPIED]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (*copies, ROOT)))}
    succeed(sys.executable, "-m", "scripts.schema_documents", cwd=changed_packages, env=env)
    arrived = succeed(sys.executable, "-c", WHERE_IT_ARRIVES, cwd=changed_packages, env=env)
    values = json.loads(arrived)
    schema = values.pop("JSON Schema")
    assert schema["description"] == "How the partition feels."
    for place, value in values.items():
        assert value in ("calm at 5", True), place
