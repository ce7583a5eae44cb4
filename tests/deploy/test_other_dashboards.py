"""The dashboards of kafka-lag-exporter and kafka_exporter, on two instances of sparklag behind one
real Prometheus: what they ask, and what the answer is.

The expressions are those of seglo/kafka-lag-exporter, `grafana/Kafka_Lag_Exporter_Dashboard.json`
(2023-01), and of Grafana's dashboard 7589, danielqsj/kafka_exporter, `kafka_exporter_overview.json`
(2026-01). Those about the exporter's own JVM are left out: they have no source here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import pytest

from sparklag_schemas import encode
from sparklag_schemas.messages.topics import key_of
from tests.deploy.programs import Programs
from tests.deploy.servers import PrometheusServer
from tests.deploy.watched_service import scraping, serving
from tests.end_to_end import Topics
from tests.local_kafka import LocalKafka
from tests.messages import query_id_in, seen
from tests.second_client import SecondClient
from tests.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

PARTITIONS: Final = 4
RECORDS: Final = 100
PROCESSED: Final = {"first": 40, "second": 10, "billing": 70}
"""Of each partition, by query; `billing` is a consumer group."""
SETTLED_S: Final = 240.0

_GROUP: Final = (
    '{namespace="$namespace",cluster_name="$cluster_name",group=~"$consumer_group",group!=""}'
)
_LOG: Final = '{namespace="$namespace",cluster_name="$cluster_name"}'
_TOPIC: Final = '{instance="$instance", topic=~"$topic"}'


def by_group(of_partition: Callable[[int], float]) -> dict[str, float]:
    return {group: of_partition(RECORDS - processed) for group, processed in PROCESSED.items()}


def in_each_partition() -> list[str]:
    return [f"{group} {number}" for group, number in product(PROCESSED, range(PARTITIONS))]


# Expression; labels that name a series of the answer; the series, with their values where those do
# not change with time.
KAFKA_LAG_EXPORTER: Final[list[tuple[str, str, Any]]] = [
    (f"topk(50, kafka_consumergroup_group_max_lag_seconds{_GROUP})", "group", list(PROCESSED)),
    (
        f"topk(25, kafka_consumergroup_group_lag_seconds{_GROUP})",
        "group partition",
        in_each_partition(),
    ),
    (f"topk(50, kafka_consumergroup_group_max_lag{_GROUP})", "group", by_group(float)),
    (
        f"topk(25, kafka_consumergroup_group_lag{_GROUP})",
        "group partition",
        {each: float(RECORDS - PROCESSED[each.split()[0]]) for each in in_each_partition()},
    ),
    (f"kafka_consumergroup_group_max_lag_seconds{_GROUP}", "group", list(PROCESSED)),
    (f"kafka_consumergroup_group_max_lag{_GROUP}", "group", by_group(float)),
    (f"max(kafka_consumergroup_group_lag_seconds{_GROUP}) by (group)", "group", list(PROCESSED)),
    (
        f"sum(kafka_consumergroup_group_offset{_GROUP})",
        "",
        {"": PARTITIONS * sum(PROCESSED.values())},
    ),
    (
        f"sum((kafka_consumergroup_group_offset{_GROUP} * 0)\n"
        "+ on(namespace,cluster_name,topic,partition) group_left()"
        f" kafka_partition_latest_offset{_LOG})",
        "",
        {"": PARTITIONS * RECORDS * len(PROCESSED)},
    ),
]
KAFKA_EXPORTER: Final[list[tuple[str, str, Any]]] = [
    (f"sum(rate(kafka_topic_partition_current_offset{_TOPIC}[1m])) by (topic)", "", [""]),
    (
        f"sum(kafka_consumergroup_lag{_TOPIC}) by (consumergroup, topic)",
        "consumergroup",
        by_group(lambda lag: PARTITIONS * lag),
    ),
    (f"sum(delta(kafka_topic_partition_current_offset{_TOPIC}[5m])/5) by (topic)", "", [""]),
    (
        f"sum(delta(kafka_consumergroup_current_offset{_TOPIC}[5m])/5) by (consumergroup, topic)",
        "consumergroup",
        list(PROCESSED),
    ),
    (f"sum by(topic) (kafka_topic_partitions{_TOPIC})", "", {"": PARTITIONS}),
]


@dataclass
class Dashboards:
    """Two queries and a consumer group, the queries measured by an instance each."""

    prometheus: PrometheusServer
    unique: str
    kill_second: Callable[[], None]

    def wrong(self) -> dict[str, str]:
        """Expressions that do not have the answer they should have, and what they have."""
        result = {}
        for expression, labels, expected in (*KAFKA_LAG_EXPORTER, *KAFKA_EXPORTER):
            values: list[tuple[str, float]] = []
            for filled in sorted({self._filled(expression, each) for each in self._instances()}):
                try:
                    answer = self.prometheus.query(filled)
                except AssertionError as error:
                    # Many-to-many is an error of Prometheus.
                    result[expression] = str(error)
                    continue
                values += [
                    (self._named(sample["metric"], labels), float(sample["value"][1]))
                    for sample in answer
                ]
            is_right = (
                dict(values) == expected
                if isinstance(expected, Mapping)
                else sorted(name for name, _ in values) == sorted(expected)
            )
            if not is_right or len(values) != len(expected):
                result.setdefault(expression, f"{values} is not {expected}")
        return result

    def _filled(self, expression: str, instance: str) -> str:
        variables = {
            "$namespace": "",
            "$cluster_name": "default",
            "$consumer_group": f".*{self.unique}",
            "$instance": instance,
            "$topic": f"orders-{self.unique}",
        }
        for variable, value in variables.items():
            expression = expression.replace(variable, value)
        return expression

    def _instances(self) -> list[str]:
        result = self.prometheus.query("count by (instance) (kafka_consumergroup_current_offset)")
        return [sample["metric"]["instance"] for sample in result]

    def _named(self, metric: Mapping[str, str], labels: str) -> str:
        return " ".join(metric[label].removesuffix(f"-{self.unique}") for label in labels.split())


@pytest.fixture(params=["as in deploy", "without relabelling"])
def shown(
    request: pytest.FixtureRequest,
    kafka: LocalKafka,
    second_client: SecondClient,
    programs: Programs,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Dashboards]:
    topics = Topics(second_client)
    unique = topics.orders.removeprefix("orders-")
    for number in range(PARTITIONS):
        second_client.produce(topics.orders, [b"record"] * RECORDS, partition=number)
    groups = {name: f"{name}-{unique}" for name in PROCESSED}
    at = {
        name: dict.fromkeys(range(PARTITIONS), processed) for name, processed in PROCESSED.items()
    }
    second_client.commit(groups["billing"], {topics.orders: at["billing"]})
    topics.environment |= {
        "SPARKLAG_METRICS__COMPAT": "kafka-lag-exporter,kafka_exporter",
        "SPARKLAG_GROUPS__ALLOW": groups["billing"],
    }
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "two", "prometheus")]
    offsets_topic = topics.environment["SPARKLAG_OFFSETS_TOPIC"]
    with serving(topics, kafka, folders[0], "") as one, ExitStack() as second:
        two = second.enter_context(serving(topics, kafka, folders[1], ""))
        shares = second_client.partitions(offsets_topic)
        for share, name in enumerate(("first", "second")):
            query = seen(
                topics.orders, at[name], query_id=query_id_in(share, shares), query=groups[name]
            )
            second_client.produce(offsets_topic, [encode(query)], key=key_of(query.query_id))
        relabels = request.param == "as in deploy"
        with scraping(programs, folders[2], one, two, relabels=relabels) as prometheus:
            yield Dashboards(prometheus, unique, second.close)


def _settled(shown: Dashboards, when: str) -> None:
    left: dict[str, str] = {}

    def is_right() -> bool:
        left.clear()
        left.update(shown.wrong())
        return not left

    try:
        wait_for(is_right, f"every expression has its answer {when}", SETTLED_S)
    except AssertionError as late:
        pytest.fail("\n".join([str(late), *(f"{key}\n    {why}" for key, why in left.items())]))


def test_expressions_have_one_series_on_two_instances_and_after_a_kill(shown: Dashboards) -> None:
    prometheus = shown.prometheus
    wait_for(lambda: prometheus.value("sum(sparklag_owned_queries > 0)") == 3, "all are measured")
    wait_for(lambda: prometheus.value("count(sparklag_owned_queries > 0)") == 2, "by two instances")
    _settled(shown, "on two instances")

    shown.kill_second()
    # What it showed is stale from that scrape on.
    wait_for(lambda: prometheus.value('count(up{job="sparklag"} == 0)') == 1, "it is gone")
    _settled(shown, "after the hand-over")
