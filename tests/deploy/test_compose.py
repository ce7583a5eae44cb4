"""Compose, Prometheus and Grafana accept docker-compose.yml and what `monitoring` mounts."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from tests.deploy import dashboards
from tests.deploy.manifests import DEPLOY, document
from tests.deploy.programs import Programs, promtool
from tests.deploy.servers import prometheus
from tests.deploy.watched_service import serving
from tests.end_to_end import Topics
from tests.local_kafka import LocalKafka
from tests.second_client import SecondClient
from tests.waiting import wait_for

ROOT: Final = DEPLOY.parent
SERVICES: Final[dict[str, dict[str, Any]]] = document(ROOT / "docker-compose.yml")["services"]
MONITORING: Final = ("prometheus", "grafana")
SECURE: Final = {name for name, each in SERVICES.items() if each.get("profiles") == ["secure"]}
PROVISIONING: Final = DEPLOY / "grafana" / "provisioning"

# Of those that Grafana documents ("Provision Grafana", grafana.com/docs), what is used here.
_DATASOURCE_FIELDS: Final = frozenset(
    ["name", "type", "uid", "access", "url", "isDefault", "editable", "jsonData"]
)
_PROVIDER_FIELDS: Final = frozenset(
    ["name", "type", "disableDeletion", "allowUiUpdates", "options"]
)


def mounts(service: str) -> dict[str, Path]:
    result = {}
    for volume in SERVICES[service]["volumes"]:
        source, target, *options = volume.split(":")
        if source.startswith("./"):
            assert options == ["ro"], volume
            result[target] = ROOT / source
    return result


def test_without_the_profile_the_services_are_those_of_the_pipeline() -> None:
    unconditional = {name for name, each in SERVICES.items() if "profiles" not in each}
    assert unconditional == {"kafka", "producer", "query", "service"}
    for name in MONITORING:
        assert SERVICES[name]["profiles"] == ["monitoring"]
    for name in unconditional:
        assert not set(SERVICES[name].get("depends_on", {})) & {*MONITORING, *SECURE}


def test_the_secure_profile_has_each_service_once_more_and_nothing_to_do_with_the_others() -> None:
    one_shot = {"credentials", "rights"}
    secured = {f"{name}-secure" for name in ("kafka", "producer", "query", "service")}
    assert secured | one_shot == SECURE
    for name in SECURE:
        service = SERVICES[name]
        assert set(service.get("depends_on", {})) <= SECURE
        assert service.get("network_mode") == "none" or list(service["networks"]) == ["secure"]
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        assert service["cap_drop"] == ["ALL"]
        assert service.get("read_only", False) is not (name == "kafka-secure")
    for name in secured:
        assert SERVICES[name]["image"] == SERVICES[name.removesuffix("-secure")]["image"]


def test_secrets_of_the_secure_profile_are_files_each_in_the_volume_of_its_reader() -> None:
    volumes = {
        name: {v.split(":")[0] for v in SERVICES[name]["volumes"] if "-secrets:" in v}
        for name in SECURE
    }
    written = volumes.pop("credentials")
    assert volumes.pop("rights") == {"admin-secrets"}
    for name, mounted in volumes.items():
        assert mounted == {f"{name.removesuffix('-secure')}-secrets"}
    assert written == {"admin-secrets"}.union(*volumes.values())
    for name in SECURE - {"credentials"}:
        assert all(v.endswith(":ro") for v in SERVICES[name]["volumes"] if "-secrets:" in v)
        for variable in SERVICES[name]["environment"]:
            assert not variable.endswith(("PASSWORD", "SIGNING_KEY")), variable


@pytest.mark.parametrize("name", ["service", "service-secure"])
def test_a_service_without_a_login_is_published_on_this_machine_alone(name: str) -> None:
    assert SERVICES[name]["environment"]["SPARKLAG_HTTP_AUTH"] == "none"
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name]["ports"])


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_has_a_limit_of_memory_and_of_processes(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"\d+[mg]", service["mem_limit"])
    assert 0 < service["pids_limit"] <= 2048


def test_images_are_built_with_the_arguments_that_the_dockerfile_takes() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    takes = {
        name.split("=")[0]
        for line in re.findall(r"^ARG (.+)", dockerfile, re.M)
        for name in line.split()
    }
    for service in SERVICES.values():
        if "build" in service:
            assert set(service["build"]["args"]) == takes
            assert f" AS {service['build']['target']}\n" in dockerfile


@pytest.mark.parametrize("name", MONITORING)
def test_monitoring_is_hardened_pinned_checked_and_on_loopback_alone(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"\$\{\w+:-[\w/]+:v?\d+\.\d+\.\d+\}", service["image"])
    assert service["healthcheck"]["test"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_prometheus_scrapes_the_service_of_compose() -> None:
    (job,) = document(mounts("prometheus")["/etc/prometheus/prometheus.yml"])["scrape_configs"]
    (targets,) = job["static_configs"]
    (target,) = targets["targets"]
    service, _, port = target.partition(":")
    assert SERVICES[service]["ports"][0].endswith(f":{port}")


@pytest.mark.packaging
def test_promtool_finds_what_is_mounted_right(programs: Programs, tmp_path: Path) -> None:
    for target, path in mounts("prometheus").items():
        copy = tmp_path / target.removeprefix("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    checked = promtool(programs, "check", "config", tmp_path / "etc/prometheus/prometheus.yml")
    assert "1 rule files found" in checked


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.packaging
def test_a_real_prometheus_scrapes_and_judges_with_that_configuration(
    kafka: LocalKafka, second_client: SecondClient, programs: Programs, tmp_path: Path
) -> None:
    mounted = mounts("prometheus")
    configuration = document(mounted["/etc/prometheus/prometheus.yml"])
    (rules,) = configuration["rule_files"]
    configuration["rule_files"] = [str(mounted[f"/etc/prometheus/{rules}"])]
    (job,) = configuration["scrape_configs"]
    with serving(Topics(second_client), kafka, tmp_path, "") as url:
        job["static_configs"][0]["targets"] = [url.removeprefix("http://")]
        with prometheus(programs, tmp_path, configuration) as server:
            wait_for(lambda: server.value('up{job="sparklag"}') == 1, "the service is scraped")
            wait_for(lambda: server.value("sparklag_ready") == 1, "the service is ready")


def test_grafana_is_given_the_prometheus_of_compose_by_fields_that_it_documents() -> None:
    datasources = document(PROVISIONING / "datasources" / "prometheus.yml")
    assert datasources["apiVersion"] == 1
    (datasource,) = datasources["datasources"]
    assert set(datasource) <= _DATASOURCE_FIELDS
    assert (datasource["type"], datasource["access"]) == ("prometheus", "proxy")
    assert datasource["url"] == "http://prometheus:9090"
    assert SERVICES["prometheus"]["ports"][0].endswith(":9090")
    interval = document(DEPLOY / "prometheus" / "prometheus-compose.yml")["global"]
    assert datasource["jsonData"]["timeInterval"] == interval["scrape_interval"]


def test_grafana_is_given_every_dashboard_by_fields_that_it_documents() -> None:
    provided = document(PROVISIONING / "dashboards" / "sparklag.yml")
    assert provided["apiVersion"] == 1
    (provider,) = provided["providers"]
    assert set(provider) <= _PROVIDER_FIELDS
    assert provider["type"] == "file"
    mounted = mounts("grafana")
    assert mounted["/etc/grafana/provisioning"] == PROVISIONING
    # Grafana takes each .json file in it, and below it.
    folder = provider["options"]["path"]
    assert sorted(mounted[folder].rglob("*.json")) == dashboards.PATHS
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home.startswith(f"{folder}/")
    assert (mounted[folder] / home.removeprefix(f"{folder}/")).is_file()


def test_grafana_lets_everybody_look_and_nobody_log_in() -> None:
    environment = SERVICES["grafana"]["environment"]
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environment["GF_AUTH_BASIC_ENABLED"] == "false"
    assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    # Compose takes a bare true for a mistake.
    assert all(isinstance(value, str) for value in environment.values())
