"""Which queries are measured where there are more than the limits take: those that came first."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparklag_schemas.errors import OverLimit
from sparklag_schemas.settings import LimitSettings
from sparklag_service.enrichment.cluster_offsets import Topic, TopicOffsets, measured_partitions
from sparklag_service.tracking.query_limits import QueryLimits, near_limits, observed_partitions
from tests.messages import observation
from tests.service.asking import query


def limits(queries: int = 3, watched_partitions: int = 10) -> QueryLimits:
    return QueryLimits(LimitSettings(queries=queries, watched_partitions=watched_partitions))


def test_a_query_beyond_the_limit_is_refused_until_another_goes() -> None:
    full = limits(queries=2)
    full.admit("a", 1)
    full.admit("b", 1)
    with pytest.raises(OverLimit, match=r"already 2 queries on this instance .limits\.queries."):
        full.admit("c", 1)
    assert full.is_full
    full.admit("a", 2)
    full.release("b")
    full.admit("c", 1)
    assert full.admitted("b") == -1


def test_a_query_that_grows_beyond_the_limit_is_refused_and_keeps_what_it_had() -> None:
    full = limits()
    full.admit("a", 6)
    full.admit("b", 4)
    with pytest.raises(OverLimit, match=r"its 7 partitions exceed the 10 .*watched_partitions"):
        full.admit("a", 7)
    assert full.admitted("a") == 6
    full.admit("b", 3)
    full.admit("a", 7)
    assert full.partitions == 10
    full.release("a")
    full.release("never seen")
    assert full.partitions == 3


def test_one_of_no_partitions_is_admitted_where_there_is_no_room_for_more() -> None:
    full = limits()
    full.admit("a", 10)
    full.admit("b", 0)
    assert full.shares == {"queries": (2, 3), "watched_partitions": (10, 10)}


def test_a_limit_that_is_nearly_reached_is_named() -> None:
    assert near_limits({"queries": (79, 100)}) is None
    assert near_limits({"queries": (4_000, 5_000), "view_mb": (1, 64)}) == (
        "4,000 of 5,000 (limits.queries)"
    )


def test_of_an_observation_positions_plans_and_topics_count() -> None:
    source = observation().sources[0]
    wide = replace(
        source,
        topics=["a", "b"],
        processed={"a": {0: 1}},
        planned={"a": {0: 1, 1: 1}, "b": {0: 1}},
        assigned=None,
    )
    assert observed_partitions(replace(observation(), sources=[wide])) == 5


def test_of_a_query_every_partition_that_its_topics_have_counts() -> None:
    state = query({"orders": [0, 1], "gone": [0]})
    offsets = {"default": {"orders": TopicOffsets(Topic("id", tuple(range(7))))}}
    assert measured_partitions(state, offsets) == 8
    assert measured_partitions(state, {}) == 3
