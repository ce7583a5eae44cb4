"""What brokers say of consumer groups, read from bytes: right, in short turns, or not at all."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklag_kafka.errors import OneGroupPerRequest, ResponseUnreadable
from sparklag_kafka.protocol.groups import (
    CoordinatorsAnswer,
    FindCoordinatorRequest,
    ListGroupsAnswer,
)
from sparklag_kafka.protocol.offset_fetch import (
    GroupAnswer,
    OffsetFetchAnswer,
    OffsetFetchRequest,
)
from sparklag_schemas import GroupSettings
from sparklag_service.intakes.group_offsets.failures import Failures
from sparklag_service.intakes.group_offsets.group_listing import GroupListing
from sparklag_service.intakes.group_offsets.group_patterns import GroupPatterns
from tests.logged import logged

# A partition: offset, text beside it, error code.
Said = tuple[int, str | None, int]
Topics = dict[str, dict[int, Said]]

_VERSIONS = (2, 3, 5, 8)
_THROTTLED = b"\0\0\0\7"
_UNKNOWN_TAG = b"\1\x63\3abc"
"""One tagged field of a newer broker: number 99, three bytes."""

_QUICKLY = settings(max_examples=50)

_text = st.text("aZ9-._ \nůὕ🐎", max_size=200)
_names = _text.filter(bool)
_said = st.tuples(st.integers(-1, 2**63 - 1), st.none() | _text, st.sampled_from([0, 0, 0, 29]))
_topics = st.dictionaries(
    _names, st.dictionaries(st.integers(0, 2**31 - 1), _said, max_size=8), max_size=4
)


class Broker:
    """Writes OffsetFetch answers in one version."""

    def __init__(self, version: int, tags: bytes = b"\0") -> None:
        self.version = version
        self.flexible = version == 8
        self._tags = tags if self.flexible else b""

    def answer(self, groups: dict[str, tuple[Topics, int]]) -> OffsetFetchAnswer:
        """All of these, or the only one."""
        throttle = _THROTTLED if self.version >= 3 else b""
        if self.flexible:
            said = (self.text(g) + self.group(*of_group) for g, of_group in groups.items())
            return OffsetFetchAnswer(
                b"".join((throttle, self.length(len(groups)), *said, self._tags)), 8, None
            )
        ((group, of_group),) = groups.items()
        return OffsetFetchAnswer(throttle + self.group(*of_group), self.version, group)

    def group(self, topics: Topics, error_code: int) -> bytes:
        said = []
        for topic, partitions in topics.items():
            said += [self.text(topic), self.length(len(partitions))]
            for number, (offset, beside, code) in partitions.items():
                said.append(struct.pack(">iq", number, offset))
                said.append(struct.pack(">i", 3) if self.version >= 5 else b"")
                said += [self.text(beside), struct.pack(">h", code), self._tags]
            said.append(self._tags)
        return b"".join(
            (self.length(len(topics)), *said, struct.pack(">h", error_code), self._tags)
        )

    def length(self, count: int) -> bytes:
        return unsigned(count + 1) if self.flexible else struct.pack(">i", count)

    def text(self, text: str | None) -> bytes:
        raw = (text or "").encode()
        if self.flexible:
            return unsigned(0 if text is None else len(raw) + 1) + raw
        return struct.pack(">h", -1 if text is None else len(raw)) + raw


def unsigned(value: int) -> bytes:
    low, high = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + unsigned(high) if high else bytes([low])


def groups_of(
    answer: OffsetFetchAnswer, known: dict[str, GroupAnswer] | None = None
) -> dict[str, GroupAnswer]:
    return {found.group: found for found in answer.read(known or {}) if found is not None}


def offsets_of(answer: GroupAnswer) -> dict[str, dict[int, int]]:
    return {topic: found.offsets for topic, found in answer.topics.items() if found.offsets}


def wanted(topics: Topics) -> dict[str, dict[int, int]]:
    by_topic = {
        topic: {n: offset for n, (offset, _, code) in said.items() if offset >= 0 and not code}
        for topic, said in topics.items()
    }
    return {topic: offsets for topic, offsets in by_topic.items() if offsets}


def failed(topics: Topics) -> dict[str, dict[int, int]]:
    by_topic = {
        topic: {n: code for n, (_, _, code) in said.items() if code}
        for topic, said in topics.items()
    }
    return {topic: codes for topic, codes in by_topic.items() if codes}


@pytest.mark.parametrize("version", _VERSIONS)
@_QUICKLY
@given(topics=_topics, error_code=st.sampled_from([0, 16, 30]), group=_names)
def test_what_a_broker_wrote_is_what_is_read(
    version: int, topics: Topics, error_code: int, group: str
) -> None:
    found = groups_of(Broker(version).answer({group: (topics, error_code)}))[group]
    assert found.error_code == error_code
    assert offsets_of(found) == wanted(topics)
    assert {t: said.failed for t, said in found.topics.items() if said.failed} == failed(topics)
    for topic, said in found.topics.items():
        beside = {number: topics[topic][number][1] for number in said.offsets}
        assert said.metadata == {number: text for number, text in beside.items() if text}


@_QUICKLY
@given(groups=st.dictionaries(_names, _topics, max_size=3))
def test_each_of_many_groups_is_read_with_what_a_newer_broker_adds(
    groups: dict[str, Topics],
) -> None:
    said = {group: (topics, 0) for group, topics in groups.items()}
    found = groups_of(Broker(8, tags=_UNKNOWN_TAG).answer(said))
    assert {group: offsets_of(answer) for group, answer in found.items()} == {
        group: wanted(topics) for group, topics in groups.items()
    }


@_QUICKLY
@given(first=_topics, then=_topics)
def test_an_answer_read_beside_an_earlier_one_says_the_same_as_alone(
    first: Topics, then: Topics
) -> None:
    for version in _VERSIONS:
        broker = Broker(version)
        known = groups_of(broker.answer({"g": (first, 0)}))
        beside = groups_of(broker.answer({"g": (then, 0)}), known)
        alone = groups_of(broker.answer({"g": (then, 0)}))
        assert beside == alone


def test_a_group_that_has_not_moved_is_not_read_again_and_of_another_only_the_topic_that_has() -> (
    None
):
    broker = Broker(8)
    plain: dict[int, Said] = {number: (number, "", 0) for number in range(500)}
    before: Topics = {"a": plain, "b": plain}
    known = groups_of(broker.answer({"still": (before, 0), "moving": (before, 0)}))
    after: Topics = {"a": plain, "b": {**plain, 7: (1_000, "", 0)}}
    found = groups_of(broker.answer({"still": (before, 0), "moving": (after, 0)}), known)
    assert found["still"] is known["still"]
    assert found["moving"].topics["a"] is known["moving"].topics["a"]
    assert found["moving"].topics["b"].offsets[7] == 1_000


@pytest.mark.parametrize("beside", ["", None, "who committed it"])
def test_reading_many_partitions_lets_others_go_on_in_between(beside: str | None) -> None:
    topics: Topics = {"t": {number: (number, beside, 0) for number in range(10_000)}}
    turns = list(Broker(8).answer({"g": (topics, 0)}).read({}))
    assert turns.count(None) >= 9
    assert [found.topics["t"].offsets[9_999] for found in turns if found] == [9_999]


def test_passing_many_groups_that_have_not_moved_lets_others_go_on_in_between() -> None:
    said: dict[str, tuple[Topics, int]] = {
        f"g{number}": ({"t": {0: (1, "", 0)}}, 0) for number in range(1_000)
    }
    answer = Broker(8).answer(said)
    turns = list(answer.read(groups_of(answer)))
    assert turns.count(None) >= 4
    assert len(turns) - turns.count(None) == 1_000


@pytest.mark.parametrize("version", _VERSIONS)
def test_an_answer_that_breaks_off_anywhere_is_an_error(version: int) -> None:
    topics: Topics = {"t": {0: (1, "", 0), 1: (2, "beside", 0)}, "u": {5: (7, None, 29)}}
    whole = Broker(version).answer({"group": (topics, 0)})
    for end in range(len(whole.data) - (1 if version == 8 else 0)):
        with pytest.raises(ResponseUnreadable):
            list(whole._replace(data=whole.data[:end]).read({}))


_READERS: list[Callable[[bytes], object]] = [
    *(
        lambda data, v=version: list(OffsetFetchAnswer(data, v, None if v == 8 else "g").read({}))
        for version in _VERSIONS
    ),
    lambda data: list(ListGroupsAnswer(data, flexible=True).read()[1]),
    lambda data: list(ListGroupsAnswer(data, flexible=False).read()[1]),
    lambda data: list(CoordinatorsAnswer(data, None).read()),
    lambda data: list(CoordinatorsAnswer(data, "g").read()),
]


@_QUICKLY
@given(garbage=st.binary(max_size=400) | st.binary(max_size=60).map(lambda b: b"\0" * 4 + b))
def test_garbage_is_read_to_an_end_or_refused(garbage: bytes) -> None:
    for read in _READERS:
        with suppress(ResponseUnreadable):
            read(garbage)


@_QUICKLY
@given(data=st.data())
def test_an_answer_with_a_wrong_byte_is_read_to_an_end_or_refused(data: st.DataObject) -> None:
    topics: Topics = {"t": {n: (n, "", 0) for n in range(30)}, "ů": {5: (7, "x", 29)}}
    whole = Broker(8).answer({"group": (topics, 0), "other": (topics, 0)})
    place = data.draw(st.integers(0, len(whole.data) - 1))
    wrong = bytearray(whole.data)
    wrong[place] = data.draw(st.integers(0, 255))
    with suppress(ResponseUnreadable):
        list(whole._replace(data=bytes(wrong)).read(groups_of(whole)))


def test_share_groups_commit_nothing_and_are_left_out() -> None:
    def listed(group: str, kind: str) -> bytes:
        return Broker(8).text(group) + Broker(8).text(kind) + _UNKNOWN_TAG

    kinds = {"a": "consumer", "b": "", "c": "share", "d": "streams"}
    groups = b"".join(listed(group, kind) for group, kind in kinds.items())
    answer = ListGroupsAnswer(_THROTTLED + b"\0\0" + unsigned(5) + groups + b"\0", flexible=True)
    error_code, found = answer.read()
    assert (error_code, list(found)) == (0, ["a", "b", "d"])


def test_an_old_broker_is_asked_for_one_group_at_a_time() -> None:
    for request in (OffsetFetchRequest(["a", "b"]), FindCoordinatorRequest(["a", "b"])):
        with pytest.raises(OneGroupPerRequest):
            request.prepare({9: (1, 7), 10: (0, 3)})


@pytest.mark.parametrize(
    ("group", "looked_at"),
    [
        ("payments", True),
        ("payments-2", False),
        ("a-payments", False),
        ("team-x", True),
        ("team-x-tmp", False),
        ("TEAM-Y", True),
        ("", False),
    ],
)
def test_patterns_are_of_whole_group_ids_and_denial_wins(group: str, looked_at: bool) -> None:
    patterns = GroupSettings(allow=["payments", "(?i)team-.*"], deny=[".*-tmp"])
    assert GroupPatterns(patterns).match(group) is looked_at


def test_a_group_is_gone_only_when_no_broker_lists_it_and_its_coordinator_has_nothing() -> None:
    listing = GroupListing()
    listing.begin_round()
    assert listing.listed("g", 1)
    assert not listing.listed("g", 1)
    assert listing.end_round() == []
    # Empty all at once: nobody knows before the lists are read again.
    assert listing.has_none("g") is None
    # Its coordinator is away, and not every broker has answered.
    listing.begin_round()
    assert listing.has_none("g") is None
    # It has moved, and is with neither for a moment.
    listing.begin_round()
    assert listing.end_round() == ["g"]
    listing.found("g", 2)
    assert listing.places["g"].node == 2
    listing.begin_round()
    assert listing.listed("g", 3)
    listing.has_offsets("g")
    assert listing.end_round() == []
    assert listing.has_none("g") is None
    # It is listed, and really has committed nothing.
    listing.begin_round()
    listing.listed("g", 3)
    assert listing.has_none("g") is True
    # Neither is it listed.
    listing.begin_round()
    assert listing.end_round(["h"]) == ["g", "h"]
    assert listing.has_none("g") is False


def test_a_listing_is_complete_when_all_have_answered_and_each_group_has_a_broker() -> None:
    listing = GroupListing()
    assert listing.is_complete
    listing.begin_round()
    listing.listed("g", 1)
    assert not listing.is_complete
    assert listing.end_round() == []
    assert listing.is_complete
    listing.moved("g")
    assert not listing.is_complete
    listing.begin_round()
    assert listing.end_round() == ["g"]
    listing.found("g", None)
    assert not listing.is_complete
    listing.found("g", 2)
    assert listing.is_complete


def test_what_fails_is_logged_once_until_it_ends_and_groups_together(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    failures = Failures("east")
    for _ in range(3):
        failures.begin(failures.broker(2), "broker 2 did not answer within 5 s")
        failures.begin_groups(dict.fromkeys("abcde", "no right to describe it"))
    assert logged(caplog) == [
        "Kafka cluster east: broker 2 did not answer within 5 s",
        "Kafka cluster east: group a, b, c and 2 more: no right to describe it",
    ]
    assert failures.reasons["groups of east: group d"] == (
        "Kafka cluster east: group d: no right to describe it"
    )
    failures.end(failures.broker(2))
    assert logged(caplog)[2:] == ["groups of east: broker 2 can be read again"]
