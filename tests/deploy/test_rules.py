"""The alerting rules: each fires where it should, stays silent beside it, and names what to do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.deploy.manifests import DEPLOY, RULES, document, rules
from tests.deploy.programs import Programs, promtool
from tests.deploy.servers import prometheus
from tests.runbook import RUNBOOK
from tests.waiting import wait_for

PROMETHEUS = DEPLOY / "prometheus"
TESTS = sorted((PROMETHEUS / "tests").glob("*.yml"))


class Expectation(NamedTuple):
    alert: str
    fires: bool


def expectations() -> set[Expectation]:
    return {
        Expectation(expected["alertname"], bool(expected["exp_alerts"]))
        for path in TESTS
        for test in document(path)["tests"]
        for expected in test["alert_rule_test"]
    }


@pytest.mark.parametrize("alert", rules("alert"), ids=lambda alert: str(alert["alert"]))
def test_every_alert_is_tested_as_it_fires_and_as_it_does_not(alert: dict[str, Any]) -> None:
    result = expectations()
    assert Expectation(alert["alert"], True) in result
    assert Expectation(alert["alert"], False) in result


@pytest.mark.parametrize("alert", rules("alert"), ids=lambda alert: str(alert["alert"]))
def test_every_alert_reports_what_it_is_and_what_to_do(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("warning", "critical")
    links = {"dashboard_url", "runbook_url"}
    if not alert["alert"].startswith("SparklagQuery"):
        links.remove("dashboard_url")
    assert set(alert["annotations"]) == {"summary", "description", "action", *links}
    _, _, anchor = alert["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^#+ (.+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert anchor in {
        re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings
    }


def test_no_alert_counts_a_query_once_for_each_instance() -> None:
    for alert in rules("alert"):
        if alert["alert"].startswith("SparklagQuery"):
            bare = re.findall(r"(?<!:)\bsparklag_query_\w+", alert["expr"])
            assert bare == [], f"{alert['alert']} reads a series that each instance has"


@pytest.mark.packaging
def test_promtool_finds_the_example_configuration_and_its_rules_right(programs: Programs) -> None:
    promtool(programs, "check", "config", PROMETHEUS / "prometheus.yml")


@pytest.mark.packaging
def test_in_kubernetes_the_pods_of_sparklag_are_scraped_while_they_run_and_no_others(
    programs: Programs, tmp_path: Path
) -> None:
    configuration = document(PROMETHEUS / "prometheus-kubernetes.yml")
    (job,) = configuration["scrape_configs"]
    assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    # What that discovery would say of four pods; Debian's Prometheus is built without it.
    pods = tmp_path / "pods.json"
    result = [
        pod("kept"),
        pod("other", app="kafka"),
        pod("debug", port="jmx"),
        pod("done", "Failed"),
    ]
    pods.write_text(json.dumps(result))
    job["file_sd_configs"] = [{"files": [str(pods)]}]
    configuration["rule_files"] = [str(RULES)]
    with prometheus(programs, tmp_path, configuration) as server:
        wait_for(lambda: bool(server.targets()), "the pods are discovered")
        (target,) = server.targets()
    assert target["labels"] == {
        "job": "sparklag",
        "namespace": "streams",
        "pod": "kept",
        "instance": "kept:1",
    }


def pod(
    name: str, phase: str = "Running", *, app: str = "sparklag", port: str = "sparklag-http"
) -> dict[str, Any]:
    meta = {
        "namespace": "streams",
        "pod_name": name,
        "pod_phase": phase,
        "pod_label_app_kubernetes_io_name": app,
        "pod_container_port_name": port,
    }
    return {
        "targets": [f"{name}:1"],
        "labels": {f"__meta_kubernetes_{key}": value for key, value in meta.items()},
    }


@pytest.mark.packaging
@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.stem))
def test_the_alerts_fire_and_are_silent_as_their_tests_say(programs: Programs, path: Path) -> None:
    promtool(programs, "test", "rules", path)
