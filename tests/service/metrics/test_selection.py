"""`[metrics]`: which queries and topics are shown, and how finely."""

from __future__ import annotations

import pytest

from tests.messages import lag_event
from tests.service.metrics.scraped import scrape, topic

EVENTS = (
    lag_event(query_id="id-1", query="orders"),
    lag_event(query_id="id-2", query="orders_late"),
    lag_event(query_id="id-3", query=None),
)
COMPAT = ["kafka-lag-exporter", "kafka_exporter"]


@pytest.mark.parametrize(
    ("include", "exclude", "shown"),
    [
        ([], [], {"id-1", "id-2", "id-3"}),
        (["orders"], [], {"id-1"}),
        (["orders.*"], [], {"id-1", "id-2"}),
        (["id-[13]"], [], {"id-1", "id-3"}),
        ([], ["orders.*"], {"id-3"}),
        (["orders.*"], ["id-2"], {"id-1"}),
    ],
)
def test_patterns_choose_queries_by_their_whole_name_or_id(
    include: list[str], exclude: list[str], shown: set[str]
) -> None:
    found = scrape(*EVENTS, include=include, exclude=exclude, compat=COMPAT)
    ids = {dict(labels).get("query_id") for _, labels in found.samples} - {None}
    assert ids == shown
    groups = {dict(labels).get("group") for _, labels in found.samples} - {None}
    assert len(groups) == len(shown)


@pytest.mark.parametrize(
    ("patterns", "shown"),
    [
        ({"include_topics": ["orders"]}, {"orders"}),
        ({"exclude_topics": ["or.*"]}, {"payments"}),
        ({"include_topics": ["or.*", "payments"], "exclude_topics": ["orders"]}, {"payments"}),
    ],
)
def test_topic_patterns_leave_sums_whole(patterns: dict[str, list[str]], shown: set[str]) -> None:
    event = lag_event(total_lag=130, topics=[topic("orders"), topic("payments")])
    found = scrape(event, compat=COMPAT, **patterns)
    assert {dict(labels).get("topic") for _, labels in found.samples} - {None} == shown
    assert found.only("sparklag_query_lag")[1] == 130.0


def test_one_whose_name_is_another_query_s_now_leaves_it_the_name_and_has_no_series() -> None:
    old = lag_event(query_id="old", query="orders", status="STOP", superseded_by="id-1")
    found = scrape(*EVENTS, old, compat=COMPAT)
    assert found.samples == scrape(*EVENTS, compat=COMPAT).samples


def test_one_that_its_driver_observes_no_longer_has_no_series() -> None:
    closed = lag_event(query_id="closed", query="closed", status="UNKNOWN", driver_end="closed")
    found = scrape(*EVENTS, closed, compat=COMPAT)
    assert found.samples == scrape(*EVENTS, compat=COMPAT).samples


@pytest.mark.parametrize("compat", [[], COMPAT])
def test_granularity_leaves_out_what_is_finer(compat: list[str]) -> None:
    def labels_of(granularity: str) -> set[str]:
        found = scrape(*EVENTS, granularity=granularity, compat=compat)
        return {label for _, labels in found.samples for label, _ in labels}

    assert {"topic", "partition"} <= labels_of("partition")
    assert {"topic", "partition"} & labels_of("topic") == {"topic"}
    assert not {"topic", "partition"} & labels_of("query")
