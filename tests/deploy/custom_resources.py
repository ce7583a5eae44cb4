"""Fields of the custom resources that the chart has, of which kubernetes-validate knows nothing.

By the documentation of the Prometheus operator (v1) and KEDA (2.16): those that are used here.
"""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string", "minLength": 1}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_TEXTS: Final[Schema] = {"type": "object", "additionalProperties": {"type": "string"}}


def _fields(required: str, optional: str = "", **schemas: Schema) -> Schema:
    """An object with these fields and no others: text, if no other schema is given."""
    names = [*required.split(), *optional.split()]
    return {
        "type": "object",
        "required": required.split(),
        "additionalProperties": False,
        "properties": {name: schemas.get(name, _TEXT) for name in names},
    }


def _list(item: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "items": item}


def _resource(api_version: str, spec: Schema) -> Schema:
    metadata = _fields("name labels", "namespace", labels=_TEXTS)
    return _fields(
        "apiVersion kind metadata spec",
        apiVersion={"const": api_version},
        metadata=metadata,
        spec=spec,
    )


_RELABELING: Final = _fields(
    "sourceLabels",
    "regex targetLabel replacement action",
    sourceLabels=_list(_TEXT),
    replacement={"type": "string"},
)
_RULE: Final = _fields(
    "expr", "record alert for labels annotations", labels=_TEXTS, annotations=_TEXTS
)
_TRIGGER: Final = _fields(
    "type metadata",
    "metricType authenticationRef",
    metricType={"enum": ["AverageValue", "Value"]},
    # The API server refuses numbers here.
    metadata=_TEXTS,
    authenticationRef=_fields("name"),
)

BY_KIND: Final[dict[str, Schema]] = {
    "ServiceMonitor": _resource(
        "monitoring.coreos.com/v1",
        _fields(
            "selector endpoints",
            selector=_fields("matchLabels", matchLabels=_TEXTS),
            endpoints=_list(
                _fields(
                    "port",
                    "interval scrapeTimeout relabelings metricRelabelings",
                    relabelings=_list(_RELABELING),
                    metricRelabelings=_list(_RELABELING),
                )
            ),
        ),
    ),
    "PrometheusRule": _resource(
        "monitoring.coreos.com/v1",
        _fields("groups", groups=_list(_fields("name rules", "interval", rules=_list(_RULE)))),
    ),
    "ScaledObject": _resource(
        "keda.sh/v1alpha1",
        _fields(
            "scaleTargetRef triggers",
            "minReplicaCount maxReplicaCount pollingInterval cooldownPeriod fallback",
            scaleTargetRef=_fields("name", "apiVersion kind"),
            minReplicaCount=_COUNT,
            maxReplicaCount=_COUNT,
            pollingInterval=_COUNT,
            cooldownPeriod=_COUNT,
            fallback=_fields("failureThreshold replicas", failureThreshold=_COUNT, replicas=_COUNT),
            triggers=_list(_TRIGGER),
        ),
    ),
    "TriggerAuthentication": _resource(
        "keda.sh/v1alpha1",
        _fields("secretTargetRef", secretTargetRef=_list(_fields("parameter name key"))),
    ),
}
