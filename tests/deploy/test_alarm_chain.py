"""A query that hangs wakes somebody, by way of Prometheus; a driver that ends in order does not."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from werkzeug import Response

from tests.deploy.manifests import DEPLOY, document
from tests.deploy.programs import Programs
from tests.deploy.servers import alertmanager
from tests.deploy.watched_service import scraping, serving
from tests.end_to_end import START_S, Topics, batch_observed, process, reports
from tests.http_server import HttpServer
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

STALLED = "SparklagQueryStalled"
SOON = """
[thresholds."orders"]
stall_factor = 2
stall_after_s = 15
"""


def routing(webhook: HttpServer) -> dict[str, Any]:
    configuration = document(DEPLOY / "alertmanager" / "alertmanager.yml")
    configuration["route"] |= {"group_wait": "1s", "group_interval": "1s"}
    on_call, data_team = configuration["receivers"]
    on_call["webhook_configs"][0]["url"] = webhook.url
    data_team["slack_configs"][0]["api_url"] = f"{webhook.url}/chat"
    return configuration


def notifications(webhook: HttpServer, status: str) -> list[dict[str, Any]]:
    return [
        alert
        for request, _ in list(webhook.log)
        for alert in request.get_json().get("alerts", ())
        if alert["labels"]["alertname"] == STALLED and alert["status"] == status
    ]


def chat(webhook: HttpServer) -> str:
    """All that it shows."""
    posts = [request.get_json() for request, _ in list(webhook.log) if request.path == "/chat"]
    return "".join(attachment["text"] for post in posts for attachment in post["attachments"])


def test_a_query_that_hangs_wakes_somebody_and_is_resolved_when_it_goes_on(
    kafka: LocalKafka, second_client: SecondClient, programs: Programs, tmp_path: Path
) -> None:
    topics = Topics(second_client)
    topics.order(500)
    hold = tmp_path / "hold"
    for part in ("service", "prometheus", "alertmanager"):
        (tmp_path / part).mkdir()
    driver = ["tests.drivers.observed", kafka.bootstrap_servers, topics.orders]
    driver += [str(tmp_path / "checkpoint"), "orders", str(hold)]
    with (
        serving(topics, kafka, tmp_path / "service", SOON) as url,
        HttpServer(lambda _: Response()) as webhook,
        alertmanager(programs, tmp_path / "alertmanager", routing(webhook)) as manager,
        scraping(programs, tmp_path / "prometheus", url, alertmanager=manager) as prometheus,
        process(topics, tmp_path / "driver.log", *driver) as orders,
    ):
        wait_for(lambda: batch_observed(url) >= 2, "batches complete", START_S)
        is_ok, hangs = (partial(reports, url, "orders", status=each) for each in ("OK", "STALL"))
        wait_for(lambda: is_ok() and not prometheus.alerts(), "all is well", START_S)
        assert notifications(webhook, "firing") == []

        hold.touch()
        topics.order(700)
        wait_for(hangs, "the service reports that it hangs", START_S)
        wait_for(lambda: prometheus.alerts().get(STALLED) == "firing", "the rule fires", START_S)
        wait_for(lambda: bool(notifications(webhook, "firing")), "somebody is woken", START_S)
        alarm = notifications(webhook, "firing")[0]
        assert alarm["labels"]["query"] == "orders"
        assert alarm["labels"]["severity"] == "critical"
        assert "orders hangs" in alarm["annotations"]["summary"]
        page = f"https://sparklag.example/q/{alarm['labels']['query_id']}"
        assert alarm["annotations"]["dashboard_url"] == page
        assert "sparklag_page_url" not in alarm["labels"]
        link = f"<{page}|Page> <{alarm['annotations']['runbook_url']}|Runbook>"
        wait_for(lambda: link in chat(webhook), "the chat has the links", START_S)
        assert notifications(webhook, "resolved") == []

        hold.unlink()
        wait_for(is_ok, "the query goes on", START_S)
        wait_for(lambda: bool(notifications(webhook, "resolved")), "that is notified too", START_S)
        wait_for(lambda: not prometheus.alerts(), "no alarm is left", START_S)

        orders.terminate()
        finished = 'query:sparklag_query_status:max{query="orders",status="FINISHED"} == 1'
        wait_for(lambda: bool(prometheus.query(finished)), "the rules see its end", START_S)
        assert not prometheus.alerts()
