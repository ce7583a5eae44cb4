"""The chart deploy/helm/sparklag: what its values change, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest
import tomli
import yaml
from jsonschema import Draft202012Validator

from scripts.helm import CHART, VERSIONS, run_helm
from scripts.kubernetes_manifest import PATH as MANIFEST
from scripts.kubernetes_manifest import manifest
from sparklag_schemas import load_settings
from sparklag_service import VERSION
from tests.commands import succeed
from tests.deploy.charts import (
    AUTOSCALING,
    DEFAULTS,
    EVERYTHING,
    SECURED,
    SETS,
    Document,
    Values,
    of_kind,
    render,
)
from tests.deploy.dashboards import PATHS as DASHBOARDS
from tests.deploy.manifests import RULES, document, kubernetes_validate

pytestmark = pytest.mark.packaging

KUBERNETES: Final = [f"1.{minor}" for minor in range(29, 38)]
LABELS: Final = {
    "app.kubernetes.io/name": "sparklag",
    "app.kubernetes.io/instance": "sparklag",
    "app.kubernetes.io/version": VERSION,
    "app.kubernetes.io/managed-by": "Helm",
    "helm.sh/chart": f"sparklag-{VERSION}",
}
CUSTOM: Final = document(Path(__file__).with_name("custom_resources.yaml"))
each_set = pytest.mark.parametrize("values", SETS.values(), ids=SETS)


def pod(documents: list[Document]) -> dict[str, Any]:
    return dict(of_kind(documents, "Deployment")["spec"]["template"]["spec"])


def container(documents: list[Document]) -> dict[str, Any]:
    return dict(pod(documents)["containers"][0])


def settings_file(documents: list[Document]) -> str:
    (text,) = [
        each["data"]["sparklag.toml"]
        for each in documents
        if each["kind"] == "ConfigMap" and "sparklag.toml" in each["data"]
    ]
    return str(text)


def with_value(path: str, value: object) -> Values:
    values = deepcopy(dict(DEFAULTS))
    *parents, name = path.split(".")
    inner = values
    for parent in parents:
        inner = inner.setdefault(parent, {})
    inner[name] = value
    return values


def test_the_plain_manifest_is_what_the_chart_renders() -> None:
    assert MANIFEST.read_text(encoding="utf-8") == manifest(), "make manifests"


def test_the_chart_has_no_links_of_which_helm_warns() -> None:
    assert [path for path in CHART.rglob("*") if path.is_symlink()] == []


@each_set
@pytest.mark.parametrize("major", VERSIONS)
def test_helm_finds_nothing_to_complain_of(values: Values, major: int) -> None:
    linted = run_helm("lint", "--strict", CHART, values=values, major=major)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    assert (linted.stderr, "[" in linted.stdout) == ("", False), "INFO or WARNING"


@each_set
def test_helm_3_and_4_render_the_same(values: Values) -> None:
    first, *others = (render(values, major) for major in VERSIONS)
    assert others == [first] * (len(VERSIONS) - 1)


@pytest.mark.slow
@each_set
def test_kubernetes_1_29_to_1_37_and_the_operators_know_every_field(
    values: Values, tmp_path: Path
) -> None:
    documents = render(values)
    for custom in documents:
        if custom["kind"] in CUSTOM:
            Draft202012Validator(CUSTOM[custom["kind"]]).validate(custom)
    own = [each for each in documents if each["kind"] not in CUSTOM]
    path = tmp_path / "rendered.yaml"
    path.write_text(yaml.safe_dump_all(own))
    for version in KUBERNETES:
        printed = succeed(kubernetes_validate(), "--strict", "-k", version, path)
        assert printed.count("passed for resource") == len(own), printed
        assert printed.count(f"against version {version}\n") == len(own), printed


@each_set
def test_no_block_is_empty_and_all_have_the_recommended_labels(values: Values) -> None:
    documents = render({**values, "affinity": {}})
    for each in documents:
        assert list(empty_blocks(each)) == []
        assert each["metadata"]["labels"].items() >= LABELS.items()


def empty_blocks(block: object, path: str = "") -> Iterator[str]:
    if block in (None, {}, []):
        yield path
    inner = dict(enumerate(block)) if isinstance(block, list) else block
    for key, inside in inner.items() if isinstance(inner, dict) else ():
        yield from empty_blocks(inside, f"{path}.{key}")


def test_a_packaged_chart_renders_as_its_folder_does(tmp_path: Path) -> None:
    packaged = run_helm("package", CHART, "--destination", tmp_path)
    assert (packaged.returncode, packaged.stderr) == (0, "")
    (package,) = tmp_path.iterdir()
    from_package = run_helm(
        "template", "sparklag", package, "--namespace", "lag", values=EVERYTHING
    )
    assert list(yaml.safe_load_all(from_package.stdout)) == render(EVERYTHING)


def test_rules_and_dashboards_are_rendered_as_they_are() -> None:
    documents = render({**EVERYTHING, "ingress": {}})
    rule = of_kind(documents, "PrometheusRule")
    label = r"\{\{ or \$externalLabels.sparklag_runbook_url \S+ }}"
    text = re.sub(label, EVERYTHING["prometheusRule"]["runbookUrl"], RULES.read_text())
    assert rule["spec"] == yaml.safe_load(text)
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    shown = {
        name: json.loads(text)
        for each in documents
        if each["kind"] == "ConfigMap" and "grafana_dashboard" in each["metadata"]["labels"]
        for name, text in each["data"].items()
    }
    assert shown == {path.name: json.loads(path.read_text()) for path in DASHBOARDS}


@pytest.mark.parametrize(
    ("values", "page"),
    [
        ({}, "https://lag.example.com/q/"),
        ({"ingress": {**EVERYTHING["ingress"], "tls": []}}, "http://lag.example.com/q/"),
        (
            {"prometheusRule": {"enabled": True, "pageUrl": "https://at.example/lag"}},
            "https://at.example/lag/q/",
        ),
    ],
)
def test_alerts_link_to_the_page_where_people_open_it(values: Values, page: str) -> None:
    groups = of_kind(render({**EVERYTHING, **values}), "PrometheusRule")["spec"]["groups"]
    (alerts,) = [group["rules"] for group in groups if group["name"] == "sparklag-lag"]
    assert all(alert["annotations"]["dashboard_url"].startswith(page) for alert in alerts)


def test_an_ingress_leads_to_the_service_which_accepts_its_hosts() -> None:
    documents = render(EVERYTHING)
    given, ingress = EVERYTHING["ingress"], of_kind(documents, "Ingress")["spec"]
    assert (ingress["ingressClassName"], ingress["tls"]) == ("nginx", given["tls"])
    service = of_kind(documents, "Service")
    backend = {"name": service["metadata"]["name"], "port": {"name": "proxy"}}
    path = {"path": "/", "pathType": "Prefix", "backend": {"service": backend}}
    expected = [{"host": host, "http": {"paths": [path]}} for host in given["hosts"]]
    assert ingress["rules"] == expected
    assert EVERYTHING["service"]["extraPorts"][0] in service["spec"]["ports"]
    named = with_value("settings.http_hosts", ["*.example.net"])
    settings = tomli.loads(settings_file(render({**named, "ingress": given})))
    assert settings["http_hosts"] == ["*.example.net", *given["hosts"]]


def test_settings_are_those_that_the_service_reads(tmp_path: Path) -> None:
    """With the secrets as the pod has them: large numbers and odd patterns too."""
    given = EVERYTHING["settings"] | {
        "keep_s": 7_776_000,
        "limits": {"partitions": 10_000_000},
        "shutdown_timeout_s": 20,
    }
    path, secrets = tmp_path / "sparklag.toml", tmp_path / "secrets"
    path.write_text(settings_file(render({**SECURED, "settings": given})))
    secrets.mkdir()
    file = secrets / "SPARKLAG_KAFKA__SASL_PASSWORD"
    file.write_text("hidden")
    (secrets / "ca.crt").touch()
    settings = load_settings(config=path, environ={"SPARKLAG_SECRETS_DIR": str(secrets)})
    password = {"kafka": {**given["kafka"], "sasl_password_file": str(file)}}
    tokens = {"http_tokens": {"file": "/run/sparklag/tokens/tokens.json"}}
    (tmp_path / "empty.toml").touch()
    assert settings == load_settings(
        config=tmp_path / "empty.toml",
        environ={},
        overrides={"http_host": "0.0.0.0", **given, **password, **tokens},
    )


def test_a_change_of_the_settings_replaces_the_pods_and_no_other_does() -> None:
    def template(values: Values) -> Any:
        return of_kind(render(values), "Deployment")["spec"]["template"]

    unchanged = template(DEFAULTS)
    assert template(with_value("settings.log_level", "DEBUG")) != unchanged
    assert template({**DEFAULTS, "replicaCount": 5, "service": {"port": 80}}) == unchanged


def test_secrets_are_mounted_and_nothing_else_of_them_is_there() -> None:
    documents = render(SECURED)
    assert {"name": "secrets", "secret": {"secretName": "sparklag"}} in pod(documents)["volumes"]
    mount = {"name": "secrets", "mountPath": "/run/secrets", "readOnly": True}
    assert mount in container(documents)["volumeMounts"]
    assert "Secret" not in {each["kind"] for each in documents}
    assert len(pod(render(DEFAULTS))["volumes"]) == 1


def test_without_more_values_there_is_nothing_that_needs_an_operator() -> None:
    assert [each["kind"] for each in render(DEFAULTS)] == [
        "NetworkPolicy",
        "PodDisruptionBudget",
        "ServiceAccount",
        "ConfigMap",
        "Service",
        "Deployment",
    ]
    assert "PodDisruptionBudget" not in {
        each["kind"] for each in render(with_value("podDisruptionBudget.enabled", False))
    }


def test_tokens_and_a_certificate_are_mounted_and_probes_use_what_the_port_speaks() -> None:
    http = {"tokensSecret": "sparklag-tokens", "tlsSecret": "sparklag-tls"}
    monitor: Values = {
        "enabled": True,
        "endpoint": {"tlsConfig": {"serverName": "sparklag.lag.svc"}},
    }
    documents = render({**DEFAULTS, **SECURED, "http": http, "serviceMonitor": monitor})
    settings = tomli.loads(settings_file(documents))
    for name, files in (("tokens", ["tokens.json"]), ("tls", ["tls.crt", "tls.key"])):
        folder = f"/run/sparklag/{name}"
        mount = {"name": name, "mountPath": folder, "readOnly": True}
        assert mount in container(documents)["volumeMounts"]
        secret = {"secretName": http[f"{name}Secret"]}
        assert {"name": name, "secret": secret} in pod(documents)["volumes"]
        given = settings[f"http_{name}"].values()
        assert list(given) == [f"{folder}/{file}" for file in files]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container(documents)[probe]["httpGet"]["scheme"] == "HTTPS"
    (endpoint,) = of_kind(documents, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint.items() >= {"port": "http", "scheme": "https", **monitor["endpoint"]}.items()


def test_a_monitoring_port_is_for_probes_and_prometheus_alone() -> None:
    prometheus = [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]
    values = deepcopy({**EVERYTHING, "http": {"tlsSecret": "sparklag-tls", "tokensSecret": "t"}})
    values["settings"]["http_monitoring_port"] = 9085
    values["networkPolicy"]["monitoringFrom"] = prometheus
    documents = render(values)
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        get = container(documents)[probe]["httpGet"]
        assert (get["port"], get["scheme"]) == ("sparklag-monitoring", "HTTPS")
    (endpoint,) = of_kind(documents, "ServiceMonitor")["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["scheme"]) == ("monitoring", "https")
    http, monitoring = of_kind(documents, "NetworkPolicy")["spec"]["ingress"]
    assert http["from"] == EVERYTHING["networkPolicy"]["ingressFrom"]
    assert monitoring == {"ports": [{"port": "sparklag-monitoring"}], "from": prometheus}


def test_pods_are_hardened_and_placed_as_the_values_say() -> None:
    documents = render(EVERYTHING)
    spec, only = pod(documents), container(documents)
    digest = EVERYTHING["image"]["digest"]
    assert only["image"] == f"registry.example/sparklag@{digest}"
    assert container(render(DEFAULTS))["image"] == f"sparklag-service:{VERSION}"
    assert only["env"] == EVERYTHING["extraEnv"]
    assert spec["containers"][1:] == EVERYTHING["extraContainers"]
    assert EVERYTHING["extraVolumes"][0] in spec["volumes"]
    assert EVERYTHING["extraVolumeMounts"][0] in only["volumeMounts"]
    names = "imagePullSecrets nodeSelector tolerations affinity initContainers priorityClassName"
    for name in names.split():
        assert spec[name] == EVERYTHING[name]
    (spread,) = spec["topologySpreadConstraints"]
    deployment = of_kind(documents, "Deployment")
    assert spread["labelSelector"] == deployment["spec"]["selector"]
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    assert annotations.items() >= EVERYTHING["podAnnotations"].items()
    labels = {**deployment["spec"]["selector"]["matchLabels"], **EVERYTHING["podLabels"]}
    assert deployment["spec"]["template"]["metadata"]["labels"] == labels
    assert of_kind(documents, "ServiceAccount")["metadata"]["name"] == spec["serviceAccountName"]
    existing = render({**DEFAULTS, "serviceAccount": {"create": False, "name": "theirs"}})
    assert pod(existing)["serviceAccountName"] == "theirs"
    assert "ServiceAccount" not in {each["kind"] for each in existing}


def test_the_port_is_that_of_the_settings_everywhere() -> None:
    documents = render(EVERYTHING)
    assert container(documents)["ports"] == [{"name": "sparklag-http", "containerPort": 9000}]
    assert tomli.loads(settings_file(documents))["http_port"] == 9000
    port, _proxy = of_kind(documents, "Service")["spec"]["ports"]
    assert port == {"name": "http", "port": 80, "targetPort": "sparklag-http"}
    (endpoint,) = of_kind(documents, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["port"] == port["name"]
    given = EVERYTHING["serviceMonitor"]
    for name in ("interval", "scrapeTimeout", "relabelings"):
        assert endpoint[name] == given[name]
    assert endpoint["metricRelabelings"][-1:] == given["metricRelabelings"]


def test_two_releases_in_a_namespace_share_no_name_and_select_no_pod_of_each_other() -> None:
    rendered = [
        list(yaml.safe_load_all(run_helm("template", name, CHART, values=DEFAULTS).stdout))
        for name in ("east", "sparklag-west")
    ]
    east, west = ({(each["kind"], each["metadata"]["name"]) for each in some} for some in rendered)
    assert not east & west
    assert ("Deployment", "east-sparklag") in east
    assert ("Deployment", "sparklag-west") in west
    labels = [
        of_kind(some, "Deployment")["spec"]["template"]["metadata"]["labels"] for some in rendered
    ]
    selectors = [of_kind(some, "Service")["spec"]["selector"] for some in rendered]
    assert labels == selectors
    assert labels[0] != labels[1]


def test_the_network_policy_lets_in_http_and_out_what_the_values_name() -> None:
    spec = of_kind(render(EVERYTHING), "NetworkPolicy")["spec"]
    given = EVERYTHING["networkPolicy"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    ports = [{"port": "sparklag-http"}, {"port": "proxy"}]
    assert spec["ingress"] == [{"ports": ports, "from": given["ingressFrom"]}]
    kafka, dns, *more = spec["egress"]
    assert kafka == {"ports": [{"port": 9092}, {"port": 9093}], "to": given["kafka"]["to"]}
    assert dns == {"ports": [{"port": 53, "protocol": name} for name in ("UDP", "TCP")]}
    assert more == given["egress"]


def test_by_default_the_network_policy_opens_the_ports_that_the_settings_name() -> None:
    settings = {
        "bootstrap_servers": "a:9093, b:9094,[2001:db8::1]:9093,c",
        "clusters": {"east": {"bootstrap_servers": "east:19092"}},
        "registry": {"url": "https://registry.example,http://other/path:5"},
        "otlp": {"endpoint": "http://collector:4318/v1/metrics"},
    }
    spec = of_kind(render({"settings": settings | {"http_auth": "none"}}), "NetworkPolicy")["spec"]
    kafka, _dns, others = spec["egress"]
    assert {each["port"] for each in kafka["ports"]} == {9093, 9094, 9092, 19092}
    assert {each["port"] for each in others["ports"]} == {443, 80, 4318}
    (only, _dns) = of_kind(render(DEFAULTS), "NetworkPolicy")["spec"]["egress"]
    assert only == {"ports": [{"port": 9092}]}


def test_keda_asks_for_the_lag_of_the_query_at_the_service() -> None:
    documents = render(AUTOSCALING)
    scaled = of_kind(documents, "ScaledObject")
    (trigger,) = scaled["spec"]["triggers"]
    address = "http://sparklag.lag.svc:8085/lag/orders%20by%20hour%2F1"
    assert trigger["metadata"]["url"] == address
    assert trigger["metadata"]["targetValue"] == "2000000"
    authentication = of_kind(documents, "TriggerAuthentication")
    assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]
    assert authentication["spec"]["secretTargetRef"] == [
        {"parameter": "token", "name": "proxy", "key": "token"}
    ]
    assert scaled["metadata"]["namespace"] == authentication["metadata"]["namespace"] == "lag"
    without = render(
        {**DEFAULTS, "keda": {"enabled": True, "query": "orders", "namespace": "workers"}}
    )
    assert of_kind(without, "ScaledObject")["metadata"]["namespace"] == "workers"
    assert "TriggerAuthentication" not in {each["kind"] for each in without}
    (trigger,) = of_kind(without, "ScaledObject")["spec"]["triggers"]
    assert "authenticationRef" not in trigger


@pytest.mark.parametrize(
    ("path", "value", "names"),
    [
        ("settings", {}, ["settings", "bootstrap_servers"]),
        ("settings.http_auth", "token", ["nobody may use", "http.tokensSecret", "http_auth=none"]),
        ("settings.bootstrap_servers", "", ["settings/bootstrap_servers", "minLength"]),
        ("settings.bootstrap_server", "kafka", ["settings", "'bootstrap_server'"]),
        ("settings.http_port", 0, ["settings/http_port", "got 0, want 1"]),
        ("settings.http_port", "http", ["settings/http_port", "got string, want integer"]),
        ("settings.log_level", "info", ["settings/log_level", "'INFO'"]),
        ("settings.kafka.sasl_password", "geheim", ["settings/kafka", "'sasl_password'"]),
        ("settings.signing_key", "geheim", ["settings", "'signing_key'"]),
        ("settings.registry.password", "geheim", ["settings/registry", "'password'"]),
        ("settings.checkpoints.storage", {"s3": {"secret": "geheim"}}, ["'storage'"]),
        (
            "settings.clusters.east",
            {"bootstrap_servers": "east:9092", "kafka": {"sasl_password": "geheim"}},
            ["settings/clusters/east/kafka", "'sasl_password'"],
        ),
        (
            "settings.store.url",
            "postgresql://u:/geheim@h/d",
            ["settings.store.url", "existingSecret"],
        ),
        ("settings.shutdown_timeout_s", 30, ["terminationGracePeriodSeconds = 30", "30"]),
        ("replicas", 3, ["'replicas'"]),
        ("replicaCount", 0, ["replicaCount", "got 0, want 1"]),
        ("replicaCount", "two", ["replicaCount", "got string, want integer"]),
        ("image.digest", "latest", ["image/digest", "sha256"]),
        ("existingSecret", "Not_A_Name", ["existingSecret", "pattern"]),
        ("keda.enabled", True, ["keda/query", "minLength"]),
        ("readinessProbe.path", "/", ["readinessProbe", "'path'"]),
        ("ingress.enabled", True, ["ingress/hosts", "minItems"]),
        ("podLabels", {"app.kubernetes.io/name": "x"}, ["podLabels/app.kubernetes.io~1name"]),
        ("prometheusRule.runbookUrl", "docs/runbook.md", ["prometheusRule/runbookUrl", "https?"]),
        ("serviceMonitor.endpoint", {"interval": "5s"}, ["serviceMonitor/endpoint/interval"]),
        (
            "serviceMonitor",
            {"enabled": True, "scrapeTimeout": "1m"},
            ["serviceMonitor.scrapeTimeout = 1m: takes at most serviceMonitor.interval, 15s"],
        ),
        ("podAnnotations.number", 1, ["podAnnotations/number", "want string"]),
    ],
)
def test_a_wrong_value_is_named_in_one_line(path: str, value: object, names: Sequence[str]) -> None:
    refused = run_helm("template", "sparklag", CHART, values=with_value(path, value))
    assert refused.returncode != 0
    lines = [line for line in refused.stderr.splitlines() if re.search("- at |execution", line)]
    assert len(lines) == 1, refused.stderr
    assert all(name in lines[0] for name in names), refused.stderr
    assert "geheim" not in refused.stdout + refused.stderr


def test_the_notes_say_where_to_look() -> None:
    shown = run_helm("install", "--dry-run=client", "sparklag", CHART, values=DEFAULTS)
    assert (shown.returncode, shown.stderr) == (0, "")
    notes = shown.stdout.partition("NOTES:\n")[2]
    assert f"2 instances of sparklag {VERSION}" in notes
    assert len(notes.splitlines()) <= 8
