"""Which queries and topics an instance shows; of other tools' names each is shown by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import combinations

import pytest

from sparklag_schemas import LagEvent
from sparklag_schemas.messages.observation import ConsumerGroup
from sparklag_service.enrichment.cluster_offsets import ClusterMetadata
from sparklag_service.metrics.rendering import QuerySeries
from tests.messages import lag_event
from tests.service.metrics.scraped import Scrape, scrape, settings, topic

COMPAT = ["kafka-lag-exporter", "kafka_exporter"]
GROUP = ConsumerGroup(members=2)
CLUSTERS = {"default": ClusterMetadata({1: ("broker", 9092)}, {})}

Series = tuple[str, tuple[tuple[str, str], ...]]


def groups_shown(events: Sequence[LagEvent], owned: Collection[str]) -> set[Series]:
    """The other tools' series that an instance shows which measures those queries."""
    series = QuerySeries(settings(compat=COMPAT))
    result = Scrape(series, *events, owned=owned, clusters=CLUSTERS)
    return {key for key in result.samples if not key[0].startswith("sparklag_")}


def labels_of(shown: set[Series], label: str) -> set[str]:
    return {dict(labels)[label] for _, labels in shown if label in dict(labels)}


EVENTS = (
    lag_event(query_id="id-1", query="one", topics=[topic("orders"), topic("payments")]),
    lag_event(query_id="id-2", query="two", topics=[topic("orders")], group=GROUP),
    lag_event(query_id="id-3", query="three", topics=[topic("orders"), topic("clicks")]),
)


def test_each_series_is_shown_by_one_instance_however_the_queries_are_shared() -> None:
    ids = {event.query_id for event in EVENTS}
    everything = groups_shown(EVENTS, ids)
    assert labels_of(everything, "topic") == {"orders", "payments", "clicks"}
    assert ("kafka_brokers", ()) in everything
    for size in range(len(ids) + 1):
        for owned in combinations(sorted(ids), size):
            counts = Counter(groups_shown(EVENTS, owned))
            counts.update(groups_shown(EVENTS, ids - set(owned)))
            assert counts == Counter(everything), owned


def test_under_sparklags_own_names_each_instance_shows_every_query() -> None:
    result = Scrape(QuerySeries(settings(compat=COMPAT)), *EVENTS, owned=())
    assert {name.partition("_")[0] for name in result.names()} == {"sparklag"}
    lags = result.values("sparklag_query_lag")
    assert {dict(labels)["query_id"] for labels in lags} == {"id-1", "id-2", "id-3"}


def test_a_topic_is_shown_by_the_service_where_a_driver_measures_one_of_its_readers() -> None:
    embedded = lag_event(
        query_id="id-0", query="zero", measured_by="embedded", topics=[topic("orders")]
    )
    shown = groups_shown((embedded, *EVENTS), {"id-1", "id-2", "id-3"})
    assert "orders" in labels_of(shown, "topic")
    assert labels_of(shown, "group") == {"one", "two", "three"}
    in_driver = groups_shown((embedded, *EVENTS), {"id-0"})
    assert labels_of(in_driver, "group") == {"zero"}
    assert not {name for name, _ in in_driver if name.startswith("kafka_topic_partition")}


@pytest.mark.parametrize("status", ["FINISHED", "FAILED"])
def test_an_ended_query_is_no_group_and_its_topic_goes_with_the_last_reader(status: str) -> None:
    ended = lag_event(query_id="id-1", query="one", status=status, topics=[topic("payments")])
    events = (ended, *EVENTS[1:])
    shown = groups_shown(events, {event.query_id for event in events})
    assert labels_of(shown, "group") == labels_of(shown, "consumergroup") == {"two", "three"}
    assert labels_of(shown, "topic") == {"orders", "clicks"}
    assert not groups_shown([ended], {"id-1"})


def test_a_query_whose_driver_died_is_a_group_as_its_lag_grows() -> None:
    dead = lag_event(query_id="id-1", query="one", status="STOP")
    assert labels_of(groups_shown([dead], {"id-1"}), "group") == {"one"}


def test_a_query_that_has_ended_leaves_its_name_to_the_next() -> None:
    ended = lag_event(query_id="id-1", query="orders", status="FINISHED")
    running = lag_event(query_id="id-2", query="orders")
    assert labels_of(groups_shown([ended, running], {"id-1", "id-2"}), "group") == {"orders"}


QUERIES = (
    lag_event(query_id="id-1", query="orders"),
    lag_event(query_id="id-2", query="orders_late"),
    lag_event(query_id="id-3", query=None),
)


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
def test_patterns_match_in_full(include: list[str], exclude: list[str], shown: set[str]) -> None:
    result = scrape(*QUERIES, include=include, exclude=exclude, compat=COMPAT)
    ids = {dict(labels).get("query_id") for _, labels in result.samples} - {None}
    assert ids == shown
    groups = {dict(labels).get("group") for _, labels in result.samples} - {None}
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
    result = scrape(event, compat=COMPAT, **patterns)
    assert {dict(labels).get("topic") for _, labels in result.samples} - {None} == shown
    assert result.only("sparklag_query_lag")[1] == 130.0


def test_one_whose_name_is_another_query_s_now_leaves_it_the_name_and_has_no_series() -> None:
    old = lag_event(query_id="old", query="orders", status="STOP", superseded_by="id-1")
    result = scrape(*QUERIES, old, compat=COMPAT)
    assert result.samples == scrape(*QUERIES, compat=COMPAT).samples


def test_one_that_its_driver_observes_no_longer_has_no_series() -> None:
    closed = lag_event(query_id="closed", query="closed", status="UNKNOWN", driver_end="closed")
    result = scrape(*QUERIES, closed, compat=COMPAT)
    assert result.samples == scrape(*QUERIES, compat=COMPAT).samples


@pytest.mark.parametrize("compat", [[], COMPAT])
def test_granularity_leaves_out_what_is_finer(compat: list[str]) -> None:
    def labels_of(granularity: str) -> set[str]:
        result = scrape(*QUERIES, granularity=granularity, compat=compat)
        return {label for _, labels in result.samples for label, _ in labels}

    assert {"topic", "partition"} <= labels_of("partition")
    assert {"topic", "partition"} & labels_of("topic") == {"topic"}
    assert not {"topic", "partition"} & labels_of("query")
