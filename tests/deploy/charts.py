"""The chart, rendered by the real Helm: its values in, Kubernetes' documents out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import yaml

from scripts.helm import CHART, VERSIONS, run_helm

Values = Mapping[str, Any]
Document = dict[str, Any]

DEFAULTS: Final[Values] = {"settings": {"bootstrap_servers": "kafka:9092", "http_auth": "none"}}
SECURED: Final[Values] = {
    "existingSecret": "sparklag",
    "http": {"tokensSecret": "sparklag-tokens"},
    "settings": {
        "bootstrap_servers": "kafka-1:9093,kafka-2:9093",
        "kafka": {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": "sparklag",
            "ssl_cafile": "/run/secrets/ca.crt",
        },
    },
}
AUTOSCALING: Final[Values] = {
    **DEFAULTS,
    "keda": {
        "enabled": True,
        "query": "orders by hour/1",
        "targetLag": 2_000_000,
        "tokenSecret": {"name": "proxy"},
    },
}
EVERYTHING: Final[Values] = {
    **SECURED,
    **AUTOSCALING,
    "settings": {
        **SECURED["settings"],
        "http_port": 9000,
        "heartbeat_s": 12.5,
        "own_partitions": ["orders", "a = 5.0"],
        "thresholds": {r'orders-\d+ "x"': {"max_lag": 1000}, ".*": {"stall_factor": 3.0}},
        "clusters": {"east": {"bootstrap_servers": "east:9092"}},
    },
    "replicaCount": 3,
    "image": {"repository": "registry.example/sparklag", "digest": "sha256:" + "0123" * 16},
    "imagePullSecrets": [{"name": "registry"}],
    "serviceAccount": {"annotations": {"example.com/role": "sparklag"}},
    "service": {"type": "NodePort", "port": 80, "annotations": {"example.com/team": "data"}},
    "podAnnotations": {"example.com/team": "data"},
    "extraEnv": [{"name": "SPARKLAG_LOG_LEVEL", "value": "DEBUG"}],
    "extraVolumes": [{"name": "store", "persistentVolumeClaim": {"claimName": "store"}}],
    "extraVolumeMounts": [{"name": "store", "mountPath": "/var/lib/sparklag"}],
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "team", "operator": "Equal", "value": "data"}],
    "affinity": {"podAntiAffinity": {}},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "dashboards": {"enabled": True, "annotations": {"grafana_folder": "Spark"}},
    "networkPolicy": {
        "enabled": True,
        "ingressFrom": [{"namespaceSelector": {"matchLabels": {"team": "data"}}}],
        "kafka": {"ports": [9092, 9093], "to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
        "egress": [{"ports": [{"port": 8081}]}],
    },
}
SETS: Final[Mapping[str, Values]] = {
    "defaults": DEFAULTS,
    "one replica": {**DEFAULTS, "replicaCount": 1},
    "secured": SECURED,
    "autoscaling": AUTOSCALING,
    "everything": EVERYTHING,
}


def render(values: Values, major: int = VERSIONS[-1]) -> list[Document]:
    done = run_helm("template", "sparklag", CHART, "--namespace", "lag", values=values, major=major)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each is not None]


def of_kind(documents: list[Document], kind: str) -> Document:
    (document,) = [each for each in documents if each["kind"] == kind]
    return document
