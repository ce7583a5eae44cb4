"""The other tools' names and labels, exactly, with queries as groups."""

from __future__ import annotations

from typing import Any

from sparklag_kafka.protocol.metadata import PartitionReplicas
from sparklag_schemas import LagEvent
from sparklag_schemas.messages.observation import ConsumerGroup
from sparklag_service.enrichment.cluster_offsets import ClusterMetadata, TopicOffsets
from sparklag_service.metrics.rendering import QuerySeries
from tests.messages import lag_event
from tests.service.metrics.scraped import Scrape, partition, scrape, settings, topic

MEMBER = {"member_host": "", "consumer_id": "", "client_id": ""}


def compat(
    tool: str, *events: LagEvent, **fields: Any
) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Samples of that tool by name: labels and value."""
    result = scrape(*events, compat=[tool], **fields)
    by_name: dict[str, list[tuple[dict[str, str], float]]] = {}
    for (name, labels), value in result.samples.items():
        if not name.startswith("sparklag_"):
            by_name.setdefault(name, []).append((dict(labels), value))
    return by_name


def test_kafka_lag_exporters_names_and_labels_are_exact() -> None:
    event = lag_event(
        total_lag=75,
        max_lag=65,
        max_time_lag_s=4.5,
        topics=[topic("orders", partition(0, time_lag_s=4.5), partition(1, lag=10))],
    )
    group = {"cluster_name": "default", "group": "orders"}
    log = {"cluster_name": "default", "topic": "orders"}

    def of(number: int) -> dict[str, str]:
        return {**group, "topic": "orders", "partition": str(number), **MEMBER}

    assert compat("kafka-lag-exporter", event) == {
        "kafka_consumergroup_group_max_lag": [(group, 65.0)],
        "kafka_consumergroup_group_max_lag_seconds": [(group, 4.5)],
        "kafka_consumergroup_group_sum_lag": [(group, 75.0)],
        "kafka_consumergroup_group_topic_sum_lag": [({**group, "topic": "orders"}, 75.0)],
        "kafka_consumergroup_group_offset": [(of(0), 5.0), (of(1), 5.0)],
        "kafka_consumergroup_group_lag": [(of(0), 65.0), (of(1), 10.0)],
        "kafka_consumergroup_group_lag_seconds": [(of(0), 4.5)],
        "kafka_partition_latest_offset": [
            ({**log, "partition": "0"}, 70.0),
            ({**log, "partition": "1"}, 70.0),
        ],
        "kafka_partition_earliest_offset": [
            ({**log, "partition": "0"}, 0.0),
            ({**log, "partition": "1"}, 0.0),
        ],
    }


def test_lags_of_other_tools_count_what_is_not_left_to_read_too() -> None:
    lost = partition(0, lag=400, readable_lag=0)
    event = lag_event(
        total_lag=10, max_lag=10, topics=[topic("orders", lost, partition(1, lag=10))]
    )
    exporter, lag_exporter = compat("kafka_exporter", event), compat("kafka-lag-exporter", event)
    assert [value for _, value in exporter["kafka_consumergroup_lag"]] == [400, 10]
    assert [value for _, value in exporter["kafka_consumergroup_lag_sum"]] == [410]
    of_group = {name: samples[0][1] for name, samples in lag_exporter.items()}
    assert of_group["kafka_consumergroup_group_sum_lag"] == 410
    assert of_group["kafka_consumergroup_group_topic_sum_lag"] == 410
    assert of_group["kafka_consumergroup_group_max_lag"] == 400
    own = scrape(event).samples
    assert [own[key] for key in own if key[0] == "sparklag_partition_lag"] == [0, 10]


def test_kafka_exporters_names_and_labels_are_exact() -> None:
    event = lag_event(topics=[topic("orders", partition(0), partition(1, lag=10))])
    of_topic = {"consumergroup": "orders", "topic": "orders"}
    zero, one = {"topic": "orders", "partition": "0"}, {"topic": "orders", "partition": "1"}
    assert compat("kafka_exporter", event) == {
        "kafka_consumergroup_current_offset": [
            ({"consumergroup": "orders", **zero}, 5.0),
            ({"consumergroup": "orders", **one}, 5.0),
        ],
        "kafka_consumergroup_lag": [
            ({"consumergroup": "orders", **zero}, 65.0),
            ({"consumergroup": "orders", **one}, 10.0),
        ],
        "kafka_consumergroup_current_offset_sum": [(of_topic, 10.0)],
        "kafka_consumergroup_lag_sum": [(of_topic, 75.0)],
        "kafka_topic_partitions": [({"topic": "orders"}, 2.0)],
        "kafka_topic_partition_current_offset": [(zero, 70.0), (one, 70.0)],
        "kafka_topic_partition_oldest_offset": [(zero, 0.0), (one, 0.0)],
    }


def test_what_is_not_known_has_no_sample_and_no_minus_one() -> None:
    nothing = partition(processed_offset=None, latest_offset=None, earliest_offset=None, lag=None)
    event = lag_event(total_lag=None, max_lag=None, topics=[topic("orders", nothing)])
    assert compat("kafka-lag-exporter", event) == {}
    assert compat("kafka_exporter", event) == {
        "kafka_topic_partitions": [({"topic": "orders"}, 1.0)]
    }


def test_a_topic_that_several_queries_read_is_there_once_with_what_was_measured_last() -> None:
    events = [
        lag_event(
            query_id=name,
            query=name,
            measured_at=measured_at,
            topics=[
                topic(
                    "orders",
                    *(partition(n, latest_offset=latest) for n in numbers),
                    isolation_level=level,
                    assigned=True,
                )
            ],
        )
        for name, measured_at, latest, numbers, level in (
            ("newest", 3_000, 72, (0, 1), "read_uncommitted"),
            ("older", 2_000, 71, (0, 1, 2), "read_uncommitted"),
            ("committed", 4_000, 60, (0, 1, 2, 3), "read_committed"),
        )
    ]
    latest = compat("kafka_exporter", *events)["kafka_topic_partition_current_offset"]
    assert [value for _, value in latest] == [72.0, 72.0, 71.0, 60.0]
    assert "kafka_topic_partitions" not in compat("kafka_exporter", *events)


def test_a_query_whose_name_another_has_goes_by_its_id_and_a_group_by_its_own() -> None:
    events = [
        lag_event(query_id="id-1", query="orders"),
        lag_event(query_id="id-2", query="orders"),
        lag_event(query_id="id-3", query=None),
        lag_event(query_id="group:default:billing", query="billing", run_id=None, origin="group"),
    ]
    result = compat("kafka-lag-exporter", *events)["kafka_consumergroup_group_sum_lag"]
    groups = {labels["group"] for labels, _ in result}
    assert groups == {"id-1", "id-2", "id-3", "billing"}


def test_the_cluster_distinguishes_groups_of_one_name() -> None:
    events = [
        lag_event(
            query_id=f"group:{cluster}:billing",
            query="billing",
            cluster=cluster,
            topics=[topic("orders", cluster=cluster)],
        )
        for cluster in ("default", "east")
    ]
    sums = compat("kafka-lag-exporter", *events, clusters=["east"])
    assert [labels for labels, _ in sums["kafka_consumergroup_group_sum_lag"]] == [
        {"cluster_name": "default", "group": "billing"},
        {"cluster_name": "east", "group": "billing"},
    ]
    lags = compat("kafka_exporter", *events, clusters=["east"])["kafka_consumergroup_lag_sum"]
    assert [labels for labels, _ in lags] == [
        {"cluster": "default", "consumergroup": "billing", "topic": "orders"},
        {"cluster": "east", "consumergroup": "billing", "topic": "orders"},
    ]


def test_kafka_exporter_shows_one_cluster_where_one_is_configured() -> None:
    event = lag_event(topics=[topic("orders"), topic("orders", cluster="other", source=1)])
    result = compat("kafka_exporter", event)
    assert len(result["kafka_consumergroup_lag"]) == 1
    assert len(result["kafka_topic_partition_current_offset"]) == 1


def test_of_a_topic_that_is_read_twice_the_slower_source_counts() -> None:
    event = lag_event(
        topics=[
            topic("orders", partition(0, processed_offset=60, lag=10), partition(1, lag=65)),
            topic(
                "orders",
                partition(0, processed_offset=50, lag=20),
                partition(1, processed_offset=None, lag=None),
                source=1,
            ),
        ]
    )
    result = compat("kafka_exporter", event)
    assert [value for _, value in result["kafka_consumergroup_lag"]] == [20.0, 65.0]
    assert [value for _, value in result["kafka_consumergroup_current_offset"]] == [50.0, 5.0]
    assert [value for _, value in result["kafka_consumergroup_lag_sum"]] == [85.0]


def test_a_group_name_changes_with_its_neighbours_and_nothing_old_stays() -> None:
    series = QuerySeries(settings(compat=["kafka_exporter"]))
    mine, other = lag_event(query_id="id-1"), lag_event(query_id="id-2")

    def groups(*events: LagEvent) -> set[str]:
        result = Scrape(series, *events)
        return {dict(k)["consumergroup"] for k in result.values("kafka_consumergroup_lag")}

    assert groups(mine) == {"orders"}
    assert groups(mine, other) == {"id-1", "id-2"}
    assert groups(mine) == {"orders"}


def described(**topics: list[PartitionReplicas]) -> ClusterMetadata:
    return ClusterMetadata(
        {1: ("b1", 9092), 2: ("b2", 9093)},
        {
            name: TopicOffsets(replicas=dict(enumerate(partitions)))
            for name, partitions in topics.items()
        },
    )


def test_kafka_exporters_names_of_the_clusters_metadata_are_exact() -> None:
    cluster = described(
        orders=[PartitionReplicas(1, 1, 2, 2), PartitionReplicas(-1, 2, 2, 1)],
        unread=[PartitionReplicas(1, 1, 1, 1)],
    )
    series = QuerySeries(settings(compat=["kafka_exporter"]))
    result = Scrape(series, lag_event(), clusters={"default": cluster, "other": cluster})
    zero, one = (("partition", "0"), ("topic", "orders")), (("partition", "1"), ("topic", "orders"))
    assert result.values("kafka_brokers") == {(): 2.0}
    assert result.values("kafka_broker_info") == {
        (("address", "b1:9092"), ("id", "1")): 1.0,
        (("address", "b2:9093"), ("id", "2")): 1.0,
    }
    for name, expected in {
        # What has no leader has no sample, as there.
        "leader": {zero: 1.0},
        "replicas": {zero: 2.0, one: 2.0},
        "in_sync_replica": {zero: 2.0, one: 1.0},
        "leader_is_preferred": {zero: 1.0, one: 0.0},
        "under_replicated_partition": {zero: 0.0, one: 1.0},
    }.items():
        assert result.values(f"kafka_topic_partition_{name}") == expected, name


def test_what_a_group_has_is_shown_under_the_names_of_both_tools() -> None:
    events = [
        lag_event(),
        lag_event(
            query_id="group:default:billing", query="billing", group=ConsumerGroup(members=3)
        ),
    ]
    assert compat("kafka_exporter", *events)["kafka_consumergroup_members"] == [
        ({"consumergroup": "billing"}, 3.0)
    ]
    series = QuerySeries(settings(compat=["kafka-lag-exporter"]))
    cluster = described()._replace(group_poll_s=0.0125)
    result = Scrape(series, *events, clusters={"default": cluster, "east": described()})
    poll_time = result.only("kafka_consumergroup_poll_time_ms")
    assert poll_time == ({"cluster_name": "default"}, 12.5)


def test_a_label_distinguishes_metadata_of_several_clusters() -> None:
    cluster = described(orders=[PartitionReplicas(1, 1, 1, 1)])
    series = QuerySeries(settings(["east"], compat=["kafka_exporter"]))
    event = lag_event(topics=[topic("orders"), topic("clicks", cluster="east")])
    result = Scrape(series, event, clusters={"default": cluster, "east": cluster})
    assert result.values("kafka_brokers") == {
        (("cluster", "default"),): 2.0,
        (("cluster", "east"),): 2.0,
    }
    assert len(result.values("kafka_broker_info")) == 4
    _, leader = result.only("kafka_topic_partition_leader")
    assert leader == 1.0
