"""sparklag's own series: names, labels, values, and what has none."""

from __future__ import annotations

import json

import pytest

from sparklag_schemas import Batch, LagEvent, RunningBatch, decode_lag_event, encode
from sparklag_schemas.messages.lag_event import Runs
from sparklag_schemas.messages.observation import ConsumerGroup
from sparklag_schemas.text.printable import printable
from sparklag_service.metrics.rendering import QuerySeries
from sparklag_service.metrics.schemes import NATIVE, ages
from tests.messages import QUERY_ID, RUN_ID, lag_event, straggler
from tests.service.metrics.scraped import (
    NOW_MS,
    Scrape,
    partition,
    scrape,
    settings,
    text_of,
    topic,
)

QUERY = {"cluster": "default", "query": "orders", "query_id": QUERY_ID}
FAMILIES = (
    *ages(NOW_MS),
    *NATIVE.query,
    *NATIVE.topic,
    *NATIVE.partition,
    *NATIVE.partition_at_risk,
)


def full_event() -> LagEvent:
    return lag_event(
        status="STALL",
        status_since=NOW_MS - 2_500,
        activity="running",
        total_lag=75,
        max_lag=65,
        max_time_lag_s=4.25,
        in_flight=7,
        unknown_partitions=1,
        lost_records=3,
        input_rate=10.5,
        processed_rate=9.25,
        batch_rate=120.0,
        lag_trend=1.25,
        catch_up_s=12.5,
        min_headroom_records=5,
        min_headroom_s=600.0,
        loss_expected_at=NOW_MS + 600_000,
        skew=0.8,
        usual_batch_s=1.5,
        usual_interval_s=10.0,
        runs=Runs(first_at=1, started_at=1, reported_at=1, failed=2),
        # No query has both these and a batch.
        group=ConsumerGroup(state="Stable", members=3, members_without_partitions=1, coordinator=2),
        commit_rate=0.2,
        batch=Batch(
            started_at=NOW_MS - 9_000,
            rows=500,
            duration_ms=1_234,
            phases_ms={"addBatch": 1_000, "walCommit": 20},
            rate_limited=True,
            state_rows=42,
            state_memory_bytes=65_536,
            watermark_at=NOW_MS - 60_000,
        ),
        running_batch=RunningBatch(
            batch_id=12,
            started_at=NOW_MS - 70_000,
            observed_at=NOW_MS - 5_000,
            progressed_at=NOW_MS - 45_000,
            jobs=1,
            tasks_total=200,
            tasks_done=180,
            tasks_running=4,
            tasks_failed=2,
            mean_task_s=2.0,
            remaining_s=10.5,
            straggler=straggler(running_s=42.0),
        ),
        topics=[
            topic(
                "orders",
                partition(0, time_lag_s=4.25, headroom_s=600.0),
                partition(7, latest_offset=15, lag=10, time_lag_s=0.125),
                partition(8, processed_offset=None, lag=None),
                partition(9, earliest_offset=8, lag=None, lost_records=3, headroom_s=0.0),
            )
        ],
    )


def test_every_family_has_a_sample_where_everything_is_known() -> None:
    assert scrape(full_event()).names() == {family.name for family in FAMILIES}


def test_a_partition_reports_its_offsets_its_lag_and_its_age() -> None:
    result = scrape(full_event())
    for name, wanted in {
        "processed_offset": {"0": 5.0, "7": 5.0, "9": 5.0},
        "latest_offset": {"0": 70.0, "7": 15.0, "8": 70.0, "9": 70.0},
        "earliest_offset": {"0": 0.0, "7": 0.0, "8": 0.0, "9": 8.0},
        "lag": {"0": 65.0, "7": 10.0},
        "lag_seconds": {"0": 4.25, "7": 0.125},
        "headroom_seconds": {"0": 600.0, "9": 0.0},
        "headroom_records": {"0": 5.0, "7": 5.0, "9": 0.0},
        "lost_records": {"9": 3.0},
    }.items():
        samples = result.values(f"sparklag_partition_{name}").items()
        assert {dict(labels)["partition"]: value for labels, value in samples} == wanted, name
        for labels, _ in samples:
            assert dict(labels).keys() == {*QUERY, "topic", "partition"}


def test_a_group_reports_its_state_and_its_members() -> None:
    result = scrape(full_event())
    assert result.only("sparklag_group_state") == ({**QUERY, "state": "Stable"}, 1.0)
    for name, value in {
        "members": 3.0,
        "members_without_partitions": 1.0,
        "coordinator": 2.0,
        "commit_rate": 0.2,
    }.items():
        assert result.only(f"sparklag_group_{name}") == (QUERY, value)
    unknown = scrape(lag_event(group=ConsumerGroup(coordinator=2)))
    assert {name for name in unknown.names() if "_group_" in name} == {"sparklag_group_coordinator"}


def test_a_distance_to_retention_is_shown_only_of_a_query_that_it_draws_nearer_to() -> None:
    name = "sparklag_partition_headroom_records"
    assert not scrape(lag_event(topics=[topic("orders", partition(0))])).values(name)
    near = lag_event(min_headroom_s=60.0, topics=[topic("orders", partition(0), partition(1))])
    assert list(scrape(near).values(name).values()) == [5.0, 5.0]


def test_a_topic_reports_its_sum_and_its_worst_age() -> None:
    result = scrape(full_event())
    assert result.only("sparklag_topic_lag") == ({**QUERY, "topic": "orders"}, 75.0)
    assert result.only("sparklag_topic_lag_seconds") == ({**QUERY, "topic": "orders"}, 4.25)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lag", 75.0),
        ("max_lag", 65.0),
        ("lag_seconds", 4.25),
        ("partitions", 4.0),
        ("unknown_partitions", 1.0),
        ("lost_records", 3.0),
        ("in_flight", 7.0),
        ("status_since_timestamp_seconds", NOW_MS / 1000 - 2.5),
        ("input_rate", 10.5),
        ("processed_rate", 9.25),
        ("batch_rate", 120.0),
        ("lag_trend", 1.25),
        ("catch_up_seconds", 12.5),
        ("headroom_records", 5.0),
        ("headroom_seconds", 600.0),
        ("loss_expected_timestamp_seconds", NOW_MS / 1000 + 600),
        ("skew_ratio", 0.8),
        ("batch_id", 41.0),
        ("batch_rows", 500.0),
        ("batch_seconds", 1.234),
        ("running_batch_seconds", 65.0),
        ("running_batch_stuck_seconds", 40.0),
        ("running_batch_remaining_seconds", 10.5),
        ("running_batch_straggler_seconds", 42.0),
        ("running_batch_failed_tasks", 2),
        ("usual_batch_seconds", 1.5),
        ("usual_interval_seconds", 10.0),
        ("rate_limited", 1.0),
        ("running", 1.0),
        ("state_rows", 42.0),
        ("state_memory_bytes", 65_536.0),
        ("watermark_timestamp_seconds", NOW_MS / 1000 - 60),
    ],
)
def test_a_query_reports_its_figures(name: str, value: float) -> None:
    assert scrape(full_event()).only(f"sparklag_query_{name}") == (QUERY, value)


def test_only_the_present_status_has_a_sample() -> None:
    series = QuerySeries(settings())
    stalled = Scrape(series, lag_event(status="STALL"))
    assert stalled.only("sparklag_query_status") == ({**QUERY, "status": "STALL"}, 1.0)
    mended = Scrape(series, lag_event(status="OK"))
    assert mended.only("sparklag_query_status") == ({**QUERY, "status": "OK"}, 1.0)


def test_the_phases_of_the_last_batch_are_reported_apart() -> None:
    result = scrape(full_event()).values("sparklag_query_batch_phase_seconds")
    assert {dict(labels)["phase"]: value for labels, value in result.items()} == {
        "addBatch": 1.0,
        "walCommit": 0.02,
    }


def test_endless_phases_and_names_have_a_short_text() -> None:
    phases_ms = {f"phase{number}": number for number in range(100_000)}
    odd = {"a b": 200_000, "x" * 900: 300_000, "addBatch": 400_000}
    batch = {"started_at": 0, "rows": 5, "phases_ms": phases_ms | odd}
    document = {**json.loads(encode(lag_event(query="q" * 1_000))), "batch": batch}
    event = decode_lag_event(json.dumps(document).encode())
    result = scrape(event).values("sparklag_query_batch_phase_seconds")
    shown = {dict(labels)["phase"]: value for labels, value in result.items()}
    assert len(shown) == 32
    assert shown.items() >= {"addBatch": 400, "other": 300, "phase99999": 99.999}.items()
    other, _ = scrape(lag_event(query="q" * 999)).only("sparklag_query_max_lag")
    names = {dict(labels)["query"] for labels in result} | {other["query"]}
    assert [len(name) for name in names] == [267, 267], "they differ"


def test_the_tasks_of_the_running_batch_are_reported_by_state() -> None:
    result = scrape(full_event()).values("sparklag_query_running_batch_tasks")
    assert {dict(labels)["state"]: value for labels, value in result.items()} == {
        "done": 180,
        "running": 4,
        "waiting": 16,
    }
    names = {name for name, _ in scrape(lag_event()).samples}
    assert not any("running_batch" in name for name in names), "not known"


def test_run_and_checkpoint_are_labels_of_the_info_alone() -> None:
    result = scrape(lag_event(checkpoint_location="file:/checkpoints/orders"))
    labels, value = result.only("sparklag_query_info")
    assert value == 1.0
    assert labels == {
        **QUERY,
        "run_id": RUN_ID,
        "origin": "listener",
        "measured_by": "service",
        "checkpoint_location": "file:/checkpoints/orders",
    }
    others = [dict(labels) for name, labels in result.samples if name != "sparklag_query_info"]
    assert not any("run_id" in labels or "batch_id" in labels for labels in others)


def test_what_is_not_known_has_no_sample() -> None:
    unknown = lag_event(
        status="UNKNOWN",
        total_lag=None,
        max_lag=None,
        batch_id=None,
        processed_at=None,
        unknown_partitions=1,
        topics=[
            topic(
                "orders",
                partition(
                    processed_offset=None, latest_offset=None, earliest_offset=None, lag=None
                ),
            )
        ],
    )
    result = scrape(unknown)
    assert result.names() == {
        "sparklag_query_info",
        "sparklag_query_status",
        "sparklag_query_partitions",
        "sparklag_query_unknown_partitions",
        "sparklag_query_lost_records",
        "sparklag_query_observed_age_seconds",
        "sparklag_query_measured_age_seconds",
    }
    assert "nan" not in text_of(QuerySeries(settings()), [unknown]).lower()


def test_ages_are_of_the_moment_of_the_scrape_and_never_negative() -> None:
    ages_ms = {"processed_at": 9_500, "observed_at": -5_000, "measured_at": 1_004}
    result = scrape(lag_event(**{name: NOW_MS - age_ms for name, age_ms in ages_ms.items()}))
    for name, wanted in (("processed", 9.5), ("observed", 0.0), ("measured", 1.004)):
        assert result.only(f"sparklag_query_{name}_age_seconds") == (QUERY, wanted)


def test_a_query_without_a_name_goes_by_its_id() -> None:
    result = scrape(lag_event(query=None))
    assert result.only("sparklag_query_lag")[0]["query"] == QUERY_ID


def test_ids_distinguish_two_queries_of_one_name() -> None:
    result = scrape(lag_event(query_id="a", total_lag=1), lag_event(query_id="b", total_lag=2))
    values = result.values("sparklag_query_lag").items()
    assert {dict(labels)["query_id"]: value for labels, value in values} == {"a": 1.0, "b": 2.0}


def test_a_topic_that_is_read_twice_has_a_label_for_its_source() -> None:
    twice = lag_event(
        topics=[
            topic("orders", partition(lag=1), source=0),
            topic("orders", partition(lag=2), source=1),
            topic("payments", partition(lag=3), source=0),
        ]
    )
    result = scrape(twice).values("sparklag_partition_lag").items()
    assert {(dict(k)["topic"], dict(k).get("source")): value for k, value in result} == {
        ("orders", "0"): 1.0,
        ("orders", "1"): 2.0,
        ("payments", None): 3.0,
    }


def test_a_topic_of_another_cluster_carries_that_cluster() -> None:
    event = lag_event(topics=[topic("orders", cluster="east"), topic("elsewhere", cluster=None)])
    result = scrape(event, clusters=["east"]).values("sparklag_topic_lag")
    assert {(dict(k)["topic"], dict(k)["cluster"]) for k in result} == {
        ("orders", "east"),
        ("elsewhere", ""),
    }


@pytest.mark.parametrize("name", ['a "quoted" name', "back\\slash", "two\nlines", "100 % größe"])
def test_labels_are_escaped_whatever_is_in_a_name(name: str) -> None:
    result = scrape(lag_event(query=name, topics=[topic(name)]))
    labels, value = result.only("sparklag_partition_lag")
    shown = printable(name)
    assert (labels["query"], labels["topic"], value) == (shown, shown, 65.0)
    assert result.only("sparklag_query_info")[0]["query"] == shown


def test_types_units_and_meanings_are_right_in_both_formats() -> None:
    result = scrape(full_event())
    for family in FAMILIES:
        text = result.families[family.name]
        open_text = result.open_families[family.name.removesuffix("_info")]
        assert (text.type, text.documentation) == ("gauge", family.meaning)
        assert (open_text.type, open_text.documentation) == (family.kind, family.meaning)
        assert open_text.unit == family.unit
        ends = [unit for unit in ("seconds", "bytes", "ratio") if family.name.endswith(unit)]
        assert ends == ([family.unit] if family.unit else [])


def test_a_query_that_goes_leaves_no_series() -> None:
    series = QuerySeries(settings(compat=["kafka-lag-exporter", "kafka_exporter"]))
    both = [lag_event(), lag_event(query_id="b", query="gone", topics=[topic("gone")])]
    assert "gone" in text_of(series, both)
    assert "gone" not in text_of(series, both[:1])


def test_a_partition_that_goes_leaves_no_series_and_the_others_keep_theirs() -> None:
    series = QuerySeries(settings(compat=["kafka-lag-exporter", "kafka_exporter"]))
    before = lag_event(topics=[topic("orders", *(partition(n, lag=n) for n in range(4)))])
    after = lag_event(topics=[topic("orders", partition(0, lag=5), partition(3, lag=6))])
    Scrape(series, before)
    result = Scrape(series, after)
    for name in ("sparklag_partition_lag", "kafka_consumergroup_lag"):
        values = result.values(name).items()
        assert {dict(k)["partition"]: value for k, value in values} == {"0": 5.0, "3": 6.0}
    assert len(result.values("kafka_topic_partition_current_offset")) == 2
