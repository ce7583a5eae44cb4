"""The documents and the code hold each other to the same contract."""

from __future__ import annotations

import json
from typing import Any, get_args

import jsonschema
import msgspec
import pytest

from scripts.schema_documents import FOLDER, PACKAGE, documents
from sparklag_schemas import LagEvent, encode
from sparklag_schemas.messages import enumerations
from sparklag_schemas.messages.headers import lag_event_headers, observation_headers
from tests.messages import lag_event, observation


def document(name: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    return result


OBSERVATION = "observation.schema.json"
LAG_EVENT = "lag_event.schema.json"
PARTITION_RECORD = "partition_record.schema.json"


@pytest.mark.parametrize("name", sorted(documents()))
def test_the_documents_are_those_that_the_types_make(name: str) -> None:
    assert (PACKAGE / name).read_text(encoding="utf-8") == documents()[name], "run `make schemas`"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (OBSERVATION, observation()),
        (LAG_EVENT, lag_event()),
        (LAG_EVENT, lag_event(total_lag=None, max_lag=None, query=None)),
    ],
)
def test_a_message_as_written_validates(name: str, message: msgspec.Struct) -> None:
    jsonschema.Draft202012Validator(document(name)).validate(json.loads(encode(message)))


@pytest.mark.parametrize("name", [OBSERVATION, LAG_EVENT, PARTITION_RECORD])
def test_the_example_of_a_schema_names_every_field_and_validates(name: str) -> None:
    schema = document(name)
    (example,) = schema["examples"]
    jsonschema.Draft202012Validator(schema).validate(example)
    assert set(example) == set(schema["properties"])


@pytest.mark.parametrize("part", ["headers", "payload"])
def test_the_examples_of_the_asyncapi_document_validate(part: str) -> None:
    api = document("asyncapi.json")
    for message in api["components"]["messages"].values():
        validator = jsonschema.Draft202012Validator(
            {"allOf": [message[part]], "components": api["components"]}
        )
        for example in message["examples"]:
            # The example in Avro has the same content.
            if part in example:
                validator.validate(example[part])


def test_the_code_refuses_what_the_schema_refuses() -> None:
    broken = json.loads(encode(lag_event()))
    broken["topics"][0]["isolation_level"] = "FINE"
    assert not jsonschema.Draft202012Validator(document(LAG_EVENT)).is_valid(broken)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(json.dumps(broken), type=LagEvent)


def test_every_word_of_the_vocabulary_is_in_the_schema() -> None:
    schema = document(LAG_EVENT)
    assert schema["properties"]["status"]["examples"] == [*get_args(enumerations.Status)]
    assert schema["properties"]["cause"]["examples"] == [*get_args(enumerations.Cause)]


def test_the_asyncapi_document_lists_the_headers_that_are_sent() -> None:
    declared = document("asyncapi.json")["components"]["schemas"]["CloudEventHeaders"]
    for headers in (observation_headers(observation()), lag_event_headers(lag_event())):
        assert [name for name, _ in headers] == declared["required"]


def test_the_headers_are_cloudevents() -> None:
    headers = dict(lag_event_headers(lag_event()))
    assert headers["ce_specversion"] == b"1.0"
    assert headers["ce_time"] == b"2026-09-21T14:13:20.250Z"
    assert headers["ce_id"] == b"e7e7"
    assert headers["ce_type"] == b"sparklag.lag.v1"
    assert headers["content-type"] == b"application/json"
