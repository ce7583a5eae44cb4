"""The manifests for Kubernetes, KEDA, HPA and Alertmanager are valid and fit together."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.chart_schema import PATH as SCHEMA
from scripts.chart_schema import chart_schema
from scripts.helm import CHART
from sparklag_schemas import Settings, load_settings
from tests.commands import succeed
from tests.deploy.manifests import (
    ADAPTER,
    DEPLOY,
    HPA,
    KEDA,
    SERVICE,
    document,
    documents,
    kubernetes_validate,
    rules,
    triggers,
)
from tests.deploy.programs import Programs


def of_kind(kind: str) -> dict[str, Any]:
    (result,) = [each for each in documents(SERVICE) if each["kind"] == kind]
    return result


def container() -> dict[str, Any]:
    (result,) = of_kind("Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(result)


@pytest.mark.packaging
@pytest.mark.parametrize("path", [SERVICE, HPA], ids=lambda path: str(path.name))
def test_kubernetes_knows_every_field(path: Path) -> None:
    checked = succeed(kubernetes_validate(), "--strict", path)
    assert checked.count("passed") == len(documents(path))


def test_the_configuration_is_one_that_the_service_takes(tmp_path: Path) -> None:
    path = tmp_path / "sparklag.toml"
    path.write_text(of_kind("ConfigMap")["data"]["sparklag.toml"])
    settings = load_settings(config=path, environ={})
    assert settings.http_host == "0.0.0.0"
    assert settings.needs_token
    (port,) = container()["ports"]
    assert port["containerPort"] == settings.http_port
    grace_s = of_kind("Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s > settings.shutdown_timeout_s


def test_probes_and_service_reach_the_port_that_prometheus_finds_too() -> None:
    (port,) = container()["ports"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container()[probe]["httpGet"]["port"] == port["name"]
    (exposed,) = of_kind("Service")["spec"]["ports"]
    assert exposed["targetPort"] == port["name"]
    assert exposed["port"] == Settings().http_port
    scrape = document(DEPLOY / "prometheus" / "prometheus-kubernetes.yml")["scrape_configs"][0]
    assert {"regex": port["name"]}.items() <= {
        key: value
        for rule in scrape["relabel_configs"]
        for key, value in rule.items()
        if rule["source_labels"] == ["__meta_kubernetes_pod_container_port_name"]
    }.items()


def test_pods_meet_the_restricted_pod_security_standard() -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/, and more."""
    pod, only = of_kind("Deployment")["spec"]["template"]["spec"], container()
    context = pod["securityContext"] | only["securityContext"]
    assert context == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    kinds = {kind for volume in pod["volumes"] for kind in volume if kind != "name"}
    assert kinds <= {"configMap", "secret"}
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & pod.keys()
    assert not any("hostPort" in port for port in only["ports"])
    assert pod["automountServiceAccountToken"] is False
    assert of_kind("ServiceAccount")["automountServiceAccountToken"] is False
    assert only["resources"]["limits"].keys() == {"memory"}


@pytest.mark.parametrize("path", KEDA, ids=lambda path: str(path.name))
def test_a_lag_that_is_not_known_takes_no_worker_away(path: Path) -> None:
    for trigger in triggers(path):
        # The API server refuses numbers here.
        assert all(isinstance(value, str) for value in trigger["metadata"].values())
        if trigger["type"] == "prometheus":
            assert trigger["metadata"]["ignoreNullValues"] == "false"
    scaled, *logins = documents(path)
    of_logins = [trigger.get("authenticationRef", {}).get("name") for trigger in triggers(path)]
    assert {name for name in of_logins if name} == {login["metadata"]["name"] for login in logins}
    for login in logins:
        parameters = {each["parameter"] for each in login["spec"]["secretTargetRef"]}
        assert (login["kind"], parameters) == ("TriggerAuthentication", {"token", "ca"})
    if "fallback" in scaled["spec"]:
        assert "AverageValue" in {trigger["metricType"] for trigger in triggers(path)}


def test_the_hpa_asks_for_metrics_that_the_adapter_makes() -> None:
    made = {rule["name"]["as"] for rule in document(ADAPTER)["rules"]["external"]}
    requested = {
        metric["external"]["metric"]["name"] for metric in document(HPA)["spec"]["metrics"]
    }
    assert requested <= made


def test_alertmanager_silences_only_alerts_that_there_are() -> None:
    alerts = {rule["alert"] for rule in rules("alert")}
    for rule in document(DEPLOY / "alertmanager" / "alertmanager.yml")["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            pattern = re.fullmatch(r'alertname=~?"(.+)"', matcher)
            assert pattern is not None
            for name in _alternatives(pattern[1]):
                assert any(re.fullmatch(name, alert) for alert in alerts), name


def _alternatives(pattern: str) -> list[str]:
    """`A|B` and `A(B|C)` written out."""
    inner = re.fullmatch(r"(\w*)\(([\w|]+)\)", pattern)
    if inner is not None:
        return [inner[1] + part for part in inner[2].split("|")]
    return pattern.split("|")


@pytest.mark.packaging
def test_amtool_finds_the_configuration_of_alertmanager_right(programs: Programs) -> None:
    succeed(programs.amtool, "check-config", DEPLOY / "alertmanager" / "alertmanager.yml")


def test_a_spark_application_is_observed_by_two_variables() -> None:
    spec = document(DEPLOY / "spark-operator" / "sparkapplication.yaml")["spec"]
    environ = {each["name"]: each["value"] for each in spec["driver"]["env"]}
    assert load_settings(environ=environ).bootstrap_servers == "kafka.kafka:9092"
    assert environ == {"SPARKLAG_AUTO": "1", "SPARKLAG_BOOTSTRAP_SERVERS": "kafka.kafka:9092"}


def test_the_schema_has_the_settings_of_the_code() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == chart_schema(), "make schemas"


def test_every_value_has_a_default_a_description_and_bounds() -> None:
    schema = json.loads(SCHEMA.read_text())
    defaults = document(CHART / "values.yaml")
    # Of a parent chart; and what has to be given.
    schema["properties"].pop("global")
    assert list(missing(schema, defaults)) == []


def missing(schema: dict[str, Any], defaults: Any) -> Iterator[str]:
    properties = schema["properties"]
    if defaults.keys() != properties.keys():
        yield f"{defaults.keys() ^ properties.keys()}"
    for name, each in properties.items():
        if "description" not in each:
            yield f"{name}: no description"
        if name != "settings" and "properties" in each:
            if each["additionalProperties"] is not False:
                yield f"{name}: takes other properties"
            yield from missing(each, defaults[name])
        if each.get("type") == "integer" and "minimum" not in each:
            yield f"{name}: no bounds"
