"""docker-compose.yml on a real engine: the stack without a profile, and `monitoring`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.containers.docker import ROOT, compose, up, variable
from tests.containers.stacks import lag_of_orders, require_hardened
from tests.second_client import SecondClient
from tests.waiting import wait_for

pytestmark = [pytest.mark.containers, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def plain() -> Iterator[None]:
    up(profile="none")
    yield
    compose("down", "-v", "--timeout", "15", profile="*")


@pytest.fixture(scope="module")
def monitoring(plain: None) -> tuple[str, ...]:
    services = tuple(variable("MONITORING").split())
    up(*services, profile="monitoring")
    return services


@pytest.mark.usefixtures("plain")
def test_the_lag_of_the_query_is_known_over_rest_and_on_the_topic() -> None:
    event = lag_of_orders(variable("HTTP_PORT"))
    client = SecondClient(f"127.0.0.1:{variable('KAFKA_PORT')}")
    key = event["query_id"].encode()

    def published() -> list[Any]:
        values = [m.value() for m in client.read_all("consumer-lag") if m.key() == key]
        return [json.loads(value) for value in values if value is not None]

    wait_for(lambda: bool(published()), "the lag is on the topic")
    assert published()[-1]["query"] == "orders"


@pytest.mark.usefixtures("plain")
def test_without_a_profile_four_hardened_containers_run() -> None:
    services = ("kafka", "producer", "query", "service")
    assert sorted(compose("ps", "-a", "--services", profile="*").split()) == sorted(services)
    require_hardened(*services)


def test_prometheus_has_the_lag_and_grafana_the_dashboards(monitoring: tuple[str, ...]) -> None:
    query = 'query:sparklag_query_lag:max{query="orders"}'
    promtool = ("promtool", "query", "instant", "http://127.0.0.1:9090", query)
    ask = ("exec", "-T", "prometheus", *promtool)
    wait_for(lambda: bool(compose(*ask, profile="monitoring").strip()), query)
    require_hardened(*monitoring)
    # No registry, no Grafana: compose_test.sh reports it.
    if "grafana" in monitoring:
        search = "http://127.0.0.1:3000/api/search?type=dash-db"
        listed = compose("exec", "-T", "grafana", "wget", "-q", "-O", "-", search, profile="*")
        uids = {dashboard["uid"] for dashboard in json.loads(listed)}
        assert {path.stem for path in (ROOT / "deploy" / "grafana").glob("*.json")} <= uids
