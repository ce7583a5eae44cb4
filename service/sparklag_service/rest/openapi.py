"""The OpenAPI document, and common parts of the routes' descriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from fastapi import FastAPI

from sparklag_schemas import LagEvent
from sparklag_schemas.presentation.sentences import Explanation
from sparklag_schemas.text.field_docs import field_docs, structs_in
from sparklag_service.history.page import HistoryPage
from sparklag_service.rest import problems
from sparklag_service.rest.authentication import needed_scope


def components(types: Sequence[type[msgspec.Struct]], ref_template: str) -> dict[str, Any]:
    """Schemas by name, of the types and their parts. `ref_template` makes references: `{name}`
    stands for the schema's name."""
    _, by_name = msgspec.json.schema_components(types, ref_template=ref_template)
    docs = {kind.__name__: field_docs(kind) for kind in structs_in(types)}
    for name, component in by_name.items():
        # Python before 3.13 keeps the indentation of docstrings.
        component["description"] = " ".join(component["description"].split())
        for field, schema in component["properties"].items():
            if field in docs[name]:
                component["properties"][field] = {"description": docs[name][field], **schema}
    return dict(by_name)


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def refused(why: str) -> dict[str, Any]:
    return {
        "description": why,
        "content": {problems.MEDIA_TYPE: {"schema": ref("ProblemDocument")}},
    }


JSON = "application/json"


def json_of(name: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {JSON: {"schema": ref(name)}}}}


REFUSED = refused("A parameter is not valid")
QUERY_PROBLEMS: dict[int | str, dict[str, Any]] = {
    404: refused("No query has this name or id"),
    409: refused("More than one live query has this name, or more than one id begins so"),
    422: REFUSED,
    503: refused("No query has this name or id yet: the view is not complete"),
}
"""The responses of a route that takes the name or id of a query."""
_NO_NUL = "^[^\\u0000]*$"
"""RequestRules refuses texts with NUL: no name contains it."""


_REFUSED_BY_TOKEN: Final = {
    "401": "No valid token, where one is needed",
    "403": "The token does not have scope `{scope}`",
    "429": "More requests than http_tokens.requests_per_s; Retry-After has the seconds",
    "503": "The issuer of the token does not answer",
}


def document(app: FastAPI, *, needs_token: bool) -> dict[str, Any]:
    if app.openapi_schema is not None:
        return app.openapi_schema
    openapi = FastAPI.openapi(app)
    components = openapi.setdefault("components", {})
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    schemas = components.setdefault("schemas", {})
    schemas.update(message_schemas("#/components/schemas/{name}"))
    for path, item in openapi["paths"].items():
        for method, operation in item.items():
            if (scope := needed_scope(method.upper(), path)) is not None:
                # Open, too: where http_auth is none, or no token is configured.
                operation["security"] = [{"token": []}] if needs_token else [{}, {"token": []}]
                for status, why in _REFUSED_BY_TOKEN.items():
                    operation["responses"].setdefault(status, refused(why.format(scope=scope)))
            for parameter in operation.get("parameters", []):
                for schema in parameter["schema"].get("anyOf", [parameter["schema"]]):
                    if schema.get("type") == "string":
                        schema.setdefault("pattern", _NO_NUL)
    return openapi


def message_schemas(ref_template: str) -> dict[str, Any]:
    """Schemas of the responses by name, see `components`."""
    types = (LagEvent, HistoryPage, Explanation, problems.ProblemDocument)
    schemas = components(types, ref_template)
    event = schemas["LagEvent"]
    topics = {
        "type": "array",
        "items": {"type": "string"},
        "description": "Names of the topics it reads.",
    }
    schemas["LagSummary"] = {
        **event,
        "title": "LagSummary",
        "description": "A lag event without its partitions.",
        "properties": {**event["properties"], "topics": topics},
    }
    schemas["LagPage"] = {
        "type": "object",
        "required": ["queries", "next_cursor", "failing", "degraded"],
        "properties": {
            "queries": {"type": "array", "items": {"$ref": ref_template.format(name="LagSummary")}},
            "next_cursor": {"type": ["string", "null"]},
            "failing": _reasons("Parts of the service that are not ready: a query may be missing"),
            "degraded": _reasons("Parts that fail and concern only the queries that need them"),
        },
    }
    return schemas


def _reasons(what: str) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "description": f"{what}. Part, and why; empty when all is well.",
    }
