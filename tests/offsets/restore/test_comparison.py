"""Two queries on the same topics: which is behind, and where."""

from __future__ import annotations

from typing import Any

import pytest

from sparklag_offsets.errors import RestoreError, TopicChanged
from sparklag_offsets.restore.positions import compare
from sparklag_offsets.store.batch_record import BatchRecord, TopicRanges, encode_ranges
from tests.offsets.store.batches import record


def at(name: str, *topics: TopicRanges) -> BatchRecord:
    return record(3, query_id=f"id-of-{name}", query=name, ranges=encode_ranges(topics))


def read(topic: str, *untils: int, source: int = 0, topic_id: str | None = None) -> TopicRanges:
    ranges: Any = [(partition, None, until) for partition, until in enumerate(untils)]
    return TopicRanges(source, topic, topic_id, None, ranges)


def test_the_second_is_behind_by_what_the_first_has_read_and_it_has_not() -> None:
    result = compare(at("blue", read("orders", 70, 50, 9)), at("green", read("orders", 40, 60, 9)))
    assert [place.behind for place in result.partitions] == [30, -10, 0]
    assert (result.behind, result.caught_up) == (30, False)
    assert result.summary("blue", "green") == "green is 30 records behind blue"


def test_it_has_caught_up_where_it_is_behind_nowhere() -> None:
    result = compare(at("blue", read("orders", 70)), at("green", read("orders", 71)))
    assert result.caught_up
    assert result.summary("blue", "green") == "green has caught up with blue"


def test_a_partition_that_only_the_first_reads_is_not_caught_up_with() -> None:
    result = compare(at("blue", read("orders", 5, 5)), at("green", read("orders", 5)))
    assert (result.behind, result.unknown, result.caught_up) == (0, 1, False)
    assert "no position in 1 of its partitions" in result.summary("blue", "green")
    # What the second reads besides is its own affair.
    assert compare(at("green", read("orders", 5)), at("blue", read("orders", 5, 5))).caught_up


def test_a_query_that_reads_a_topic_twice_is_where_the_slower_source_is() -> None:
    twice = at("blue", read("orders", 30), read("orders", 20, source=1))
    assert compare(twice, at("green", read("orders", 20))).caught_up


def test_topics_of_the_second_alone_do_not_count() -> None:
    result = compare(at("blue", read("a", 5)), at("green", read("a", 5), read("b", 1)))
    assert [place.topic for place in result.partitions] == ["a"]


def test_no_common_topic_is_reported_with_those_of_both() -> None:
    with pytest.raises(RestoreError, match=r"^blue and green have no topic in common: a; b$"):
        compare(at("blue", read("a", 5)), at("green", read("b", 5)))


def test_a_topic_that_was_created_anew_in_between_cannot_be_compared() -> None:
    before, since = read("a", 5, topic_id="one"), read("a", 5, topic_id="two")
    with pytest.raises(TopicChanged, match="topic a was recreated"):
        compare(at("blue", before), at("green", since))
