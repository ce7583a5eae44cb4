"""OffsetFetch, read from bytes as brokers of each version send them."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.errors import IncompatibleBrokerVersion
from hypothesis import given
from hypothesis import strategies as st

from sparklag_kafka.brokers.group_offsets import fetch_offsets
from sparklag_kafka.brokers.pool import BrokerConnection
from sparklag_kafka.errors import ResponseUnreadable
from sparklag_kafka.protocol.groups import (
    CommittedGroup,
    OffsetFetchRequest,
    OffsetFetchResponse,
    committed_groups,
)

# A partition: offset, metadata, error code.
Row = tuple[int, str | None, int]
Topics = dict[str, dict[int, Row]]

_VERSIONS = (2, 3, 8)
_THROTTLED = b"\0\0\0\7"
_UNKNOWN_TAG = b"\1\x63\3abc"
"""A tagged field of a newer broker: number 99, three bytes."""


_text = st.text("aZ9-._ \nůὕ🐎", max_size=200)
_names = _text.filter(bool)
_rows = st.tuples(st.integers(-1, 2**63 - 1), st.none() | _text, st.sampled_from([0, 0, 0, 29]))
_topics = st.dictionaries(
    _names, st.dictionaries(st.integers(0, 2**31 - 1), _rows, max_size=8), max_size=4
)


class Broker:
    def __init__(self, version: int, tags: bytes = b"\0") -> None:
        self.version = version
        self.flexible = version == 8
        self._tags = tags if self.flexible else b""

    def respond(self, groups: dict[str, tuple[Topics, int]]) -> OffsetFetchResponse:
        """The response to a request for all of these, or for the only one."""
        throttle = _THROTTLED if self.version >= 3 else b""
        if self.flexible:
            parts = (self.text(g) + self.group(*of_group) for g, of_group in groups.items())
            data = b"".join((throttle, self.length(len(groups)), *parts, self._tags))
            return OffsetFetchResponse(data, committed_groups)
        ((group, of_group),) = groups.items()
        request = OffsetFetchRequest([group]).prepare({9: (0, self.version)})
        assert self.version == request.API_VERSION
        response = request.RESPONSE_TYPE.decode(BytesIO(throttle + self.group(*of_group)))
        return cast(OffsetFetchResponse, response)

    def group(self, topics: Topics, error_code: int) -> bytes:
        parts = []
        for topic, partitions in topics.items():
            parts += [self.text(topic), self.length(len(partitions))]
            for number, (offset, metadata, code) in partitions.items():
                parts.append(struct.pack(">iq", number, offset))
                parts.append(struct.pack(">i", 3) if self.version >= 5 else b"")
                parts += [self.text(metadata), struct.pack(">h", code), self._tags]
            parts.append(self._tags)
        return b"".join(
            (self.length(len(topics)), *parts, struct.pack(">h", error_code), self._tags)
        )

    def length(self, count: int) -> bytes:
        return unsigned(count + 1) if self.flexible else struct.pack(">i", count)

    def text(self, text: str | None) -> bytes:
        raw = (text or "").encode()
        if self.flexible:
            return unsigned(0 if text is None else len(raw) + 1) + raw
        return struct.pack(">h", -1 if text is None else len(raw)) + raw


def fetched(response: OffsetFetchResponse) -> BrokerConnection:
    async def send(request: Any) -> OffsetFetchResponse:
        return response

    return cast(BrokerConnection, SimpleNamespace(send=send))


def unsigned(value: int) -> bytes:
    low, high = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + unsigned(high) if high else bytes([low])


def offsets_of(group: CommittedGroup) -> dict[str, dict[int, int]]:
    return not_empty({name: topic.offsets for name, topic in group.topics.items()})


def not_empty(by_topic: dict[str, dict[int, int]]) -> dict[str, dict[int, int]]:
    return {topic: numbers for topic, numbers in by_topic.items() if numbers}


def expected_offsets(topics: Topics) -> dict[str, dict[int, int]]:
    return not_empty(
        {
            topic: {n: offset for n, (offset, _, code) in rows.items() if offset >= 0 and not code}
            for topic, rows in topics.items()
        }
    )


@pytest.mark.parametrize("version", _VERSIONS)
@given(topics=_topics, error_code=st.sampled_from([0, 16, 30]), group=_names)
def test_a_response_is_decoded(version: int, topics: Topics, error_code: int, group: str) -> None:
    committed = Broker(version).respond({group: (topics, error_code)}).decode()[group]
    assert committed.error_code == error_code
    assert offsets_of(committed) == expected_offsets(topics)
    errors = not_empty({t: topic.error_codes for t, topic in committed.topics.items()})
    assert errors == not_empty(
        {t: {n: code for n, (_, _, code) in rows.items() if code} for t, rows in topics.items()}
    )
    for name, topic in committed.topics.items():
        metadata = {number: topics[name][number][1] for number in topic.offsets}
        assert topic.metadata == {number: text for number, text in metadata.items() if text}


@given(groups=st.dictionaries(_names, _topics, max_size=3))
def test_many_groups_are_read_with_what_a_newer_broker_adds(groups: dict[str, Topics]) -> None:
    written = {group: (topics, 0) for group, topics in groups.items()}
    committed = Broker(8, tags=_UNKNOWN_TAG).respond(written).decode()
    assert {group: offsets_of(topics) for group, topics in committed.items()} == {
        group: expected_offsets(topics) for group, topics in groups.items()
    }


def test_metadata_may_be_any_bytes() -> None:
    response = Broker(8).respond({"g": ({"t": {0: (5, "xx", 0)}}, 0)})
    response = replace(response, data=response.data.replace(b"xx", b"\xff\xfe"))
    topic = response.decode()["g"].topics["t"]
    assert (topic.offsets, topic.metadata) == ({0: 5}, {0: "\ufffd\ufffd"})


@pytest.mark.parametrize("version", _VERSIONS)
async def test_a_response_like_an_earlier_one_is_not_decoded_again(version: int) -> None:
    broker = Broker(version)
    before: Topics = {"t": {number: (number, "", 0) for number in range(500)}}
    after: Topics = {"t": {**before["t"], 7: (1_000, "", 0)}}
    first = await fetch_offsets(fetched(broker.respond({"g": (before, 0)})), ["g"])
    ((_, groups),) = first.items()
    same = await fetch_offsets(fetched(broker.respond({"g": (before, 0)})), ["g"], first)
    assert [known["g"] is groups["g"] for known in same.values()] == [True]
    changed = await fetch_offsets(fetched(broker.respond({"g": (after, 0)})), ["g"], same)
    ((_, groups),) = changed.items()
    assert groups["g"].topics["t"].offsets == {**{n: n for n in range(500)}, 7: 1_000}


@pytest.mark.parametrize("metadata", ["", None, "who committed it"])
@pytest.mark.blocks_loop("the test encodes 50,000 partitions")
async def test_decoding_many_partitions_lets_others_go_on_in_between(metadata: str | None) -> None:
    topics: Topics = {"t": {number: (number, metadata, 0) for number in range(50_000)}}
    fetching = asyncio.ensure_future(
        fetch_offsets(fetched(Broker(8).respond({"g": (topics, 0)})), ["g"])
    )
    turns = 0
    while not fetching.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 9
    ((_, groups),) = fetching.result().items()
    assert groups["g"].topics["t"].offsets[49_999] == 49_999


@pytest.mark.parametrize("version", _VERSIONS)
def test_a_response_that_breaks_off_anywhere_is_an_error(version: int) -> None:
    topics: Topics = {"t": {0: (1, "", 0), 1: (2, "metadata", 0)}, "u": {5: (7, None, 29)}}
    whole = Broker(version).respond({"group": (topics, 0)})
    for end in range(len(whole.data)):
        with pytest.raises(ResponseUnreadable):
            replace(whole, data=whole.data[:end]).decode()


@given(garbage=st.binary(max_size=400) | st.binary(max_size=60).map(lambda b: b"\0" * 4 + b))
def test_garbage_is_read_to_an_end_or_refused(garbage: bytes) -> None:
    for version in _VERSIONS:
        with suppress(ResponseUnreadable):
            replace(Broker(version).respond({"g": ({}, 0)}), data=garbage).decode()


@given(data=st.data())
def test_a_response_with_a_wrong_byte_is_read_to_an_end_or_refused(data: st.DataObject) -> None:
    topics: Topics = {"t": {n: (n, "", 0) for n in range(30)}, "ů": {5: (7, "x", 29)}}
    whole = Broker(8).respond({"group": (topics, 0), "other": (topics, 0)})
    at = data.draw(st.integers(0, len(whole.data) - 1))
    wrong = bytearray(whole.data)
    wrong[at] = data.draw(st.integers(0, 255))
    with suppress(ResponseUnreadable):
        replace(whole, data=bytes(wrong)).decode()


def test_an_old_broker_takes_one_group_in_a_request() -> None:
    with pytest.raises(IncompatibleBrokerVersion):
        OffsetFetchRequest(["a", "b"]).prepare({9: (1, 7)})
