"""The topics in a source's description."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklag_listener.events.kafka_source import (
    QueryDescription,
    described,
    parse_source,
    parse_starting,
    reads,
)
from sparklag_schemas import SourcePosition
from tests import samples

TOPICS = st.lists(
    st.text("abcXYZ019._-", min_size=1, max_size=12), min_size=1, max_size=5, unique=True
)


def test_every_kafka_source_of_the_samples_is_named() -> None:
    named = set()
    for name in samples.PROGRESS:
        for index, source in enumerate(samples.progress_document(name)["sources"]):
            if source["description"].startswith("Kafka"):
                result = parse_source(index, source["description"])
                assert result.source == index
                assert (result.topics is None) == (result.topic_pattern is not None)
                if source["endOffset"]:
                    assert reads(result, set(source["endOffset"])), source
                named.add(source["description"].split("[")[1])
    assert named == {"Subscribe", "SubscribePattern", "Assign"}


@pytest.mark.parametrize("kind", ["KafkaV2", "KafkaSource"])  # the second of older Sparks
@given(topics=TOPICS)
def test_subscribed_topics_are_read(kind: str, topics: list[str]) -> None:
    result = parse_source(3, f"{kind}[Subscribe[{', '.join(topics)}]]")
    assert result == SourcePosition(source=3, topics=topics)


@given(TOPICS, st.lists(st.integers(0, 3000), min_size=1, max_size=4, unique=True))
def test_assignments_are_read_in_any_order(topics: list[str], partitions: list[int]) -> None:
    output = ", ".join(f"{topic}-{number}" for number in partitions for topic in topics)
    result = parse_source(0, f"KafkaV2[Assign[{output}]]")
    assert result.assigned == {topic: sorted(partitions) for topic in topics}
    assert set(result.topics or ()) == set(topics)


@pytest.mark.parametrize("pattern", ["orders.*", "a[bc]d, e", "x]]", "(?i)o.{2,3}"])
def test_a_pattern_is_taken_as_it_is(pattern: str) -> None:
    result = parse_source(0, f"KafkaV2[SubscribePattern[{pattern}]]")
    assert (result.topics, result.topic_pattern, result.assigned) == (None, pattern, None)


@pytest.mark.parametrize(
    "description",
    ["", "KafkaV2", "KafkaV2[...]", "KafkaV2[Other[a]]", "RateStreamV2[Subscribe[a]]",
     "KafkaV2[Subscribe[a]", "FileStreamSource[file:/KafkaV2[Subscribe[a]]]"],
)  # fmt: skip
def test_what_names_no_topic_is_left_alone(description: str) -> None:
    assert parse_source(0, description) == SourcePosition(source=0)


def test_ambiguous_partitions_name_nothing() -> None:
    result = parse_source(0, "KafkaV2[Assign[orders]]")
    assert (result.topics, result.assigned) == (None, None)


@pytest.mark.parametrize(
    ("options", "starting"),
    [
        ({"startingoffsets": "earliest"}, {}),
        ({"startingoffsets": '{"a": {"0": -2, "1": -1, "2": 7}}'}, {"a": {0: -2, 1: -1, 2: 7}}),
        ({"startingoffsets": "earliest", "startingtimestamp": "1790000000000"}, None),
    ],
)
def test_where_the_first_batch_starts_is_read(
    options: dict[str, str], starting: dict[str, dict[int, int]] | None
) -> None:
    assert parse_starting(options) == starting


def test_a_position_replaces_where_the_first_batch_starts() -> None:
    description = QueryDescription((SourcePosition(source=0, topics=["a"], starting={}),))
    (before,) = described([], description)
    (after,) = described([SourcePosition(source=0, processed={"a": {0: 5}})], description)
    assert (before.starting, after.starting) == ({}, None)
