"""Grafana's dashboards: each can be loaded, and each panel finds data in a real Prometheus."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest

from tests.deploy import dashboards
from tests.deploy.manifests import ADAPTER, KEDA, adapter_query, document, triggers
from tests.deploy.played_queries import played_queries
from tests.deploy.programs import Programs
from tests.deploy.servers import PrometheusServer
from tests.deploy.watched_service import scraping, serving
from tests.end_to_end import Topics
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.waiting import wait_for

DATA_S = 240.0
EACH = pytest.mark.parametrize("path", dashboards.PATHS, ids=lambda path: str(path.stem))


@EACH
def test_a_dashboard_asks_the_data_source_that_is_chosen(path: Path) -> None:
    dashboard = dashboards.load(path)
    (chosen,) = [v for v in dashboard["templating"]["list"] if v["type"] == "datasource"]
    wanted = {"type": "prometheus", "uid": f"${{{chosen['name']}}}"}
    for panel in dashboards.panels(dashboard):
        assert panel["datasource"] == wanted, panel["title"]
        assert all(target["datasource"] == wanted for target in panel["targets"])
    for variable in dashboard["templating"]["list"]:
        assert variable is chosen or variable["datasource"] == wanted


@EACH
def test_a_dashboard_has_every_panel_once_and_none_over_another(path: Path) -> None:
    dashboard = dashboards.load(path)
    assert dashboard["uid"] == path.stem
    # What Grafana 10 writes; later ones take it too.
    assert dashboard["schemaVersion"] == 39
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(numbers)) == len(numbers)
    for one, other in combinations((panel["gridPos"] for panel in dashboard["panels"]), 2):
        assert not _overlap(one, other), (one, other)
    assert all(panel["title"] for panel in dashboard["panels"])


@EACH
def test_a_dashboard_leads_only_to_dashboards_that_there_are(path: Path) -> None:
    leads_to = set(re.findall(r'"/d/([\w-]+)', path.read_text()))
    assert leads_to <= {other.stem for other in dashboards.PATHS}


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    apart_x = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
    apart_y = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    return one["x"] + one["w"] > 24 or not (apart_x or apart_y)


class Watched(NamedTuple):
    url: str
    prometheus: PrometheusServer


@pytest.fixture(scope="module")
def watched(
    kafka: LocalKafka,
    second_client: SecondClient,
    programs: Programs,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Watched]:
    topics = Topics(second_client)
    topics.environment |= {
        "SPARKLAG_METRICS__COMPAT": "kafka-lag-exporter,kafka_exporter",
        "SPARKLAG_EARLIEST_INTERVAL_S": "1",
    }
    service, folder = tmp_path_factory.mktemp("service"), tmp_path_factory.mktemp("prometheus")
    offsets_topic = topics.environment["SPARKLAG_OFFSETS_TOPIC"]
    with (
        serving(topics, kafka, service, "") as url,
        scraping(programs, folder, url) as prometheus,
        played_queries(second_client, topics.orders, offsets_topic),
    ):
        yield Watched(url, prometheus)


@pytest.mark.kafka
@EACH
def test_every_panel_finds_data(watched: Watched, path: Path) -> None:
    waiting = set(dashboards.expressions(dashboards.load(path)))

    def all_detected() -> bool:
        for requested in list(waiting):
            if watched.prometheus.query(requested.expression):
                waiting.discard(requested)
        return not waiting

    try:
        wait_for(all_detected, "every panel finds data", DATA_S)
    except AssertionError as late:
        missing = [f"no data: {each.panel}: {each.expression}" for each in waiting]
        pytest.fail("\n".join([str(late), *missing]))


@pytest.mark.kafka
@EACH
def test_every_variable_has_values_to_choose(watched: Watched, path: Path) -> None:
    for name, requested in dashboards.variables(dashboards.load(path)).items():
        parts = re.fullmatch(r"label_values\((.+), (\w+)\)", requested)
        assert parts is not None, requested
        series, label = parts[1], parts[2]

        def has_values(series: str = series, label: str = label) -> bool:
            return bool(watched.prometheus.label_values(label, series))

        wait_for(has_values, f"there is something to choose for {name}", DATA_S)


@pytest.mark.kafka
@pytest.mark.parametrize("path", KEDA, ids=lambda path: str(path.name))
def test_what_keda_asks_has_one_number_as_answer(watched: Watched, path: Path) -> None:
    for trigger in triggers(path):
        metadata = trigger["metadata"]
        if trigger["type"] == "metrics-api":
            url = urlsplit(metadata["url"])
            requested = f"{watched.url}{url.path}"
            # The service refuses names of others.
            headers = {"host": url.netloc}

            def answered(
                requested: str = requested,
                headers: dict[str, str] = headers,
                where: str = metadata["valueLocation"],
            ) -> bool:
                answer = httpx.get(requested, headers=headers, timeout=60)
                return answer.is_success and isinstance(answer.json()[where], int)

            wait_for(answered, requested, DATA_S)
        else:
            _wait_for_number(watched.prometheus, metadata["query"])


@pytest.mark.kafka
def test_what_the_adapter_asks_for_an_hpa_has_one_number_as_answer(watched: Watched) -> None:
    rules: list[dict[str, Any]] = document(ADAPTER)["rules"]["external"]
    for rule in rules:
        _wait_for_number(watched.prometheus, adapter_query(rule, 'query="orders"'))


def _wait_for_number(prometheus: PrometheusServer, expression: str) -> None:
    wait_for(lambda: prometheus.value(expression) is not None, expression, DATA_S)
