"""`sparklag serve`, scraped by a real Prometheus with the configuration and rules of deploy/."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.manifests import DEPLOY, RULES, document
from tests.deploy.programs import Programs
from tests.deploy.servers import PrometheusServer, prometheus
from tests.end_to_end import Topics, service
from tests.local_kafka import LocalKafka


def serving(
    topics: Topics, kafka: LocalKafka, folder: Path, configuration: str
) -> AbstractContextManager[str]:
    """A service that reads `configuration` as its sparklag.toml: not started."""
    path = folder / "sparklag.toml"
    path.write_text(configuration)
    return service(topics, kafka, folder / "service.log", "--config", str(path))


def scraping(
    programs: Programs,
    folder: Path,
    *urls: str,
    alertmanager: str | None = None,
    relabels: bool = True,
) -> AbstractContextManager[PrometheusServer]:
    """Prometheus as deploy/ has it, but each second, and alarms after a second: not started."""
    configuration = document(DEPLOY / "prometheus" / "prometheus.yml")
    rules = folder / "rules.yml"
    rules.write_text(yaml.safe_dump(_hasty(document(RULES))))
    configuration["global"] |= {"scrape_interval": "1s", "evaluation_interval": "1s"}
    configuration["rule_files"] = [str(rules)]
    (job,) = configuration["scrape_configs"]
    if not relabels:
        del job["metric_relabel_configs"]
    (targets,) = job["static_configs"]
    targets["targets"] = [url.removeprefix("http://") for url in urls]
    (manager,) = configuration["alerting"]["alertmanagers"]
    manager["static_configs"][0]["targets"] = [alertmanager] if alertmanager else []
    return prometheus(programs, folder, configuration)


def _hasty(rules: Mapping[str, Any]) -> dict[str, Any]:
    groups = [
        {**group, "rules": [{**rule, **_soon(rule)} for rule in group["rules"]]}
        for group in rules["groups"]
    ]
    return {**rules, "groups": groups}


def _soon(rule: Mapping[str, Any]) -> dict[str, str]:
    return {"for": "1s"} if "for" in rule else {}
