"""`sparklag serve`, scraped by a real Prometheus with the configuration and rules of deploy/."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from sparklag_pipeline.local_kafka import LocalKafka
from tests.deploy.manifests import DEPLOY, document
from tests.deploy.programs import Programs
from tests.deploy.servers import PrometheusServer
from tests.end_to_end import START_S, Topics, answer, process
from tests.waiting import wait_for

_RULES = DEPLOY / "prometheus" / "sparklag.rules.yml"


@contextmanager
def serving(topics: Topics, kafka: LocalKafka, folder: Path, configuration: str) -> Iterator[str]:
    """A ready service that reads `configuration` as its sparklag.toml: its address."""
    path, log = folder / "sparklag.toml", folder / "service.log"
    path.write_text(configuration)
    arguments = ["--bootstrap-servers", kafka.bootstrap_servers, "--http-port", "0"]
    with process(topics, log, "sparklag_service", "serve", "--config", str(path), *arguments):
        wait_for(lambda: "serving http://" in log.read_text(), "the service serves", START_S)
        url = log.read_text().partition("serving ")[2].split()[0]
        wait_for(lambda: answer(f"{url}/health/ready") is not None, "it is ready", START_S)
        yield url


def scraping(
    programs: Programs, folder: Path, url: str, *, alertmanager: str | None = None
) -> PrometheusServer:
    """Prometheus as deploy/ has it, but each second, and alarms after a second: not started."""
    configuration = document(DEPLOY / "prometheus" / "prometheus.yml")
    rules = folder / "rules.yml"
    rules.write_text(yaml.safe_dump(_hasty(document(_RULES))))
    configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    configuration["rule_files"] = [str(rules)]
    (job,) = configuration["scrape_configs"]
    (targets,) = job["static_configs"]
    targets["targets"] = [url.removeprefix("http://")]
    (manager,) = configuration["alerting"]["alertmanagers"]
    manager["static_configs"][0]["targets"] = [alertmanager] if alertmanager else []
    return PrometheusServer(programs, folder, configuration)


def _hasty(rules: Mapping[str, Any]) -> dict[str, Any]:
    groups = [
        {**group, "rules": [{**rule, **_soon(rule)} for rule in group["rules"]]}
        for group in rules["groups"]
    ]
    return {**rules, "groups": groups}


def _soon(rule: Mapping[str, Any]) -> dict[str, str]:
    return {"for": "1s"} if "for" in rule else {}
