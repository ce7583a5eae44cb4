"""Whatever bytes come from outside, a parser reads them, or reports in one line why it does not."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from httpx_sse import EventSource
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from scripts.message_examples import MessageType, example_value
from sparklag_kafka.errors import ResponseUnreadable
from sparklag_kafka.protocol.list_offsets import read_offsets
from sparklag_kafka.protocol.metadata import MetadataResponse
from sparklag_listener.events.event_queue import Progressed
from sparklag_listener.events.observer import Observer
from sparklag_listener.events.progress import parse_progress
from sparklag_offsets.checkpoints import offset_log
from sparklag_offsets.errors import CheckpointError
from sparklag_offsets.store import batch_record
from sparklag_schemas import LagEvent, Observation, SparklagError
from sparklag_schemas.avro import codec as avro_codec
from sparklag_schemas.avro.schema import parse_schema, schema_of
from sparklag_schemas.codec import JsonDecoder
from sparklag_schemas.errors import ContractError, MalformedMessage, SettingsError
from sparklag_schemas.settings import load_settings
from sparklag_service.cli.requests import decoded
from sparklag_service.cli.terminal import ascii_json
from sparklag_service.cli.top.state import LagPage
from tests import samples
from tests.fuzz.edits import as_json, changed, edited, places_in
from tests.fuzz.extremes import LIMITS
from tests.kafka.test_untrusted_batches import Reading, batch, checksum_of
from tests.schemas.avro.test_encoder import by_fastavro

NO_FIXTURES_RESET = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)
"""A temporary folder is written anew for each case."""


def fails_in_one_line(
    parse: Callable[[bytes], object], data: bytes, *errors: type[Exception]
) -> object:
    try:
        return parse(data)
    except errors as error:
        if isinstance(error, SparklagError):
            text = str(error)
            assert text
            assert len(text) < 2_000
            assert "\n" not in text
        return None


# Progress of a query.

PROGRESS = [samples.progress_document(name) for name in samples.PROGRESS if "2000p" not in name]


def observed(text: str) -> None:
    observation = Observer("default").observe(Progressed(text, 1_790_000_000_000))
    if observation is not None:
        written = msgspec.json.encode(observation)
        assert JsonDecoder(Observation).decode(written) == observation


@given(st.sampled_from(PROGRESS).flatmap(changed))
def test_a_progress_in_which_values_are_others(document: Any) -> None:
    text = as_json(document).decode("utf-8", "surrogatepass")
    fails_in_one_line(lambda _: observed(text), b"", MalformedMessage)


@given(st.sampled_from(PROGRESS).map(as_json).flatmap(edited))
@example(b'{"id":' + b"[" * 2_000)
@example(b'{"id":"a","runId":"b","endOffset":' + b"[" * 2_000)
def test_a_progress_of_which_bytes_are_others(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    fails_in_one_line(lambda _: observed(text), b"", MalformedMessage)


# Files of a checkpoint.

CHECKPOINT_FILES = {
    "offsets": offset_log.parse_offsets,
    "commits": offset_log.parse_commit,
    "metadata": offset_log.parse_metadata,
    "sources": offset_log.parse_initial_offsets,
}


@cache
def files_of(kind: str) -> list[bytes]:
    folder = samples.FOLDER / "checkpoints"
    result = [
        path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and kind in path.relative_to(folder).parts and path.suffix != ".crc"
    ]
    return list(dict.fromkeys(result))


@pytest.mark.parametrize("kind", CHECKPOINT_FILES)
@given(st.data())
def test_a_file_of_a_checkpoint(kind: str, data: st.DataObject) -> None:
    content = data.draw(st.sampled_from(files_of(kind)).flatmap(edited))
    parse = CHECKPOINT_FILES[kind]
    fails_in_one_line(lambda result: parse(result, kind), content, CheckpointError)


# Messages.

MESSAGES = (Observation, LagEvent)
each_message = pytest.mark.parametrize("message", MESSAGES, ids=lambda one: one.__name__)


@each_message
@given(st.data())
def test_a_message_in_json(message: MessageType, data: st.DataObject) -> None:
    document = json.loads(json.dumps(example_value(message)))
    written = data.draw(changed(document).map(as_json) | edited(as_json(document)))
    result = fails_in_one_line(JsonDecoder(message).decode, written, ContractError)
    if result is not None:
        assert JsonDecoder(message).decode(msgspec.json.encode(result)) == result


@each_message
@given(st.data())
def test_a_message_in_avro(message: MessageType, data: st.DataObject) -> None:
    schema = schema_of(message)
    written = b"\0\0\0\0\1" + by_fastavro(schema.parsed, example_value(message))
    content = data.draw(edited(written))
    fails_in_one_line(
        lambda result: avro_codec.decode(result, schema, message), content, ContractError
    )


@given(st.sampled_from(MESSAGES).flatmap(lambda one: changed(json.loads(schema_of(one).text))))
@example(
    {"type": "record", "name": "a", "fields": [{"name": "b", "type": "double", "default": 10**400}]}
)
def test_a_schema_of_a_registry(document: Any) -> None:
    text = json.dumps(document)
    fails_in_one_line(lambda _: parse_schema(text), b"", MalformedMessage)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@given(st.data())
def test_a_batch_of_records(codec: str, data: st.DataObject) -> None:
    whole = batch(codec, b"one", b"two" * 50)
    # What is before it has been checked by a broker, the sum with it.
    content = data.draw(edited(whole[21:])).ljust(40, b"\0")
    size = (9 + len(content)).to_bytes(4, "big")
    head = whole[:8] + size + whole[12:17] + checksum_of(bytes(21) + content)
    reading = Reading(head + content)
    assert len(reading.unreadable) <= 1


# Settings.


@given(
    st.binary(max_size=40)
    | edited(
        b'bootstrap_servers = "h:1"\n[kafka]\nsasl_mechanism = "PLAIN"\n[limits]\nqueries = 5\n'
        b'[clusters.east]\nbootstrap_servers = "e:1"\n[thresholds."a.*"]\n[store]\nurl = "sqlite:///x"\n'
    )
)
@example(b"queries = " + b"9" * 5_000)
@example(b'[thresholds."a{99999999999999999999}"]')
@example(b'[thresholds."' + b"(" * 5_000 + b'"]')
# Of a pattern that a later Python may read in another way. It is still a pattern.
@pytest.mark.filterwarnings("ignore::FutureWarning")
@settings(suppress_health_check=NO_FIXTURES_RESET)
def test_a_settings_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "sparklag.toml"
    path.write_bytes(content)
    fails_in_one_line(lambda _: load_settings(config=path, environ={}), b"", SettingsError)


_PROPERTY = st.lists(
    st.sampled_from(
        ["kafka", "clusters", "checkpoints", "storage", "s3", "saslUsername", "httpPort"]
    )
    | st.text(max_size=8)
).map(".".join)


@given(st.dictionaries(_PROPERTY, st.text(max_size=20), max_size=4))
@example({"checkpoints.storage.s3." + "a." * 100_000: ""})
def test_settings_in_sparks_configuration(properties: dict[str, str]) -> None:
    fails_in_one_line(
        lambda _: load_settings(environ={}, spark_configuration=properties), b"", SettingsError
    )


# Answers of brokers. Those about groups: see their own tests.


@given(
    edited(
        b"\0\0\0\0\0\0\0\1\0\6orders\0\0\0\1" + bytes(4) + bytes(2) + bytes(8) + b"\0" * 7 + b"F"
    )
)
def test_where_logs_end_as_a_broker_reports(content: bytes) -> None:
    def read(answer: bytes) -> None:
        for _, partitions in read_offsets(answer):
            list(partitions)

    fails_in_one_line(read, content, ResponseUnreadable)


@pytest.mark.parametrize("flexible", [False, True])
@given(st.data())
def test_which_brokers_there_are_as_one_reports(flexible: bool, data: st.DataObject) -> None:
    content = data.draw(st.binary(max_size=200) | edited(bytes(60)))

    def read(answer: bytes) -> None:
        _, topics = MetadataResponse(answer, flexible).read()
        for topic in topics:
            assert topic.name is not None

    fails_in_one_line(read, content, ResponseUnreadable)


# What each takes in memory.


def frames_of(document: Any) -> list[bytes]:
    """The document with @ in place of each part that is no number; positions first."""
    parts = {json.dumps(part) for _, part in places_in(document) if isinstance(part, dict | list)}
    text = json.dumps(document).replace("@", "")
    frames = [text.replace(part, "@", 1) for part in sorted(parts)]
    return sorted(map(str.encode, frames), key=lambda frame: b'"processed": @' not in frame)


def message_frames(kind: MessageType) -> tuple[Callable[[bytes], object], list[bytes]]:
    def parse(data: bytes) -> None:
        LIMITS.check(JsonDecoder(kind).decode(data), 2**53)

    return parse, frames_of(json.loads(json.dumps(example_value(kind))))


FRAMES: dict[str, tuple[Callable[[bytes], object], list[bytes]]] = {
    "observation": message_frames(Observation),
    "lag event": message_frames(LagEvent),
    "progress": (lambda data: parse_progress(data.decode()), frames_of(PROGRESS[-1])),
    "offsets": (
        lambda data: offset_log.parse_offsets(data, ""),
        [b"v1\n{}\n@", b"@", b"v1\n@\n{}", b"v2\n{}\n0:@", b"v2\n{}\n@"],
    ),
    "commits": (lambda data: offset_log.parse_commit(data, ""), [b"v1\n@", b'v1\n{"a":@}']),
    "metadata": (lambda data: offset_log.parse_metadata(data, ""), [b"@", b'{"id":@}']),
    "sources": (lambda data: offset_log.parse_initial_offsets(data, ""), [b"\0v1\n@"]),
    "ranges": (batch_record._decode, [b'[[0,"a",null,null,@]]', b"@"]),
    "stream": (
        lambda data: list(EventSource(streamed(data)).iter_sse()),
        [b"data:@\n\n", b"@", b"id:@"],
    ),
    "response": (lambda data: decoded(data, LagPage, "http://a"), [b'{"queries":@}', b"@"]),
    "document": (ascii_json, [b"@", b'{"a":@}']),
}


def streamed(data: bytes) -> httpx.Response:
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=data)


SHAPES = [
    *(("{", each, ",", "}") for each in ('"%x":{"0":0}', '"%x":{}', '"%x":[0]', '"%x":0')),
    *(("[", each, ",", "]") for each in ("{}", "[0,0,0]", "0", '"%x"', '{"partition":%d}')),
    *(("", each, "", "") for each in ("{}\n", "\n", '%d:{"a":{"0":0}}\n', "9", "[", '{"a":')),
    *(('"', each, "", '"') for each in ("a", "\\u00e9", "é", "\U0001f600")),
]


@pytest.mark.parametrize("parser", FRAMES)
@given(st.sampled_from(SHAPES), st.integers(200_000, 4_000_000), st.integers(0, 200))
@example(SHAPES[0], 1_800_000, 0)
@example(SHAPES[6], 4_000_000, 1)
@settings(max_examples=max(2, settings().max_examples // 40))
def test_memory_is_at_most_20_times_the_input_and_10_mb(
    parser: str, shape: tuple[str, str, str, str], size: int, frame: int
) -> None:
    parse, frames = FRAMES[parser]
    begin, each, between, end = shape
    numbers = range(0x10000, 0x10000 + size // (len(each) + len(between) + 3 * each.count("%")))
    often = between.join([each % n if "%" in each else each for n in numbers])
    data = frames[frame % len(frames)].replace(b"@", f"{begin}{often}{end}".encode())
    tracemalloc.start()
    try:
        with suppress(Exception):
            parse(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 20 * len(data) + 10_000_000
