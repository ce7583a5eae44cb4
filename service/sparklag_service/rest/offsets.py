"""`GET /offsets/{query}`: the position of a query at a time, as Spark's `startingOffsets`."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Annotated, Final

from fastapi import FastAPI, Query, Request, Response

from sparklag_kafka.errors import KafkaUnavailable
from sparklag_offsets.errors import (
    AmbiguousQuery,
    BeforeFirstBatch,
    OffsetsError,
    PositionDeleted,
    SourceNotNamed,
    StoreError,
    TopicChanged,
    UnknownQuery,
)
from sparklag_offsets.restore.positions import Edge, OnDeleted, position_of_record
from sparklag_offsets.restore.restoration import RestoreOptions, find_record, restore
from sparklag_offsets.store import open_store
from sparklag_schemas import SparklagError
from sparklag_schemas.text.printable import printable
from sparklag_schemas.timestamps import epoch_ms, timestamp_ms
from sparklag_service.rest import problems
from sparklag_service.rest.authentication import principal_of
from sparklag_service.rest.openapi import JSON, QUERY_PROBLEMS
from sparklag_service.rest.queries import find_query
from sparklag_service.rest.system import Backend

_MAX_STORES: Final = 4
"""Concurrent requests to the offset store, each on its own connection."""
_OFFSETS: Final = {
    "type": "object",
    "description": "Topic, then partition, then offset; -2 is earliest.",
    "additionalProperties": {"type": "object", "additionalProperties": {"type": "integer"}},
}
_KINDS: Final[dict[type[SparklagError], str]] = {
    UnknownQuery: "unknown-query",
    BeforeFirstBatch: "before-first-batch",
    AmbiguousQuery: "ambiguous-query-name",
    SourceNotNamed: "source-not-named",
    PositionDeleted: "position-deleted",
    TopicChanged: "topic-changed",
    KafkaUnavailable: "kafka-away",
    StoreError: "offset-store-away",
    OffsetsError: "not-restorable",
}


def add_offsets(app: FastAPI, backend: Backend) -> None:
    settings, reads = backend.settings, asyncio.Semaphore(_MAX_STORES)

    @app.get(
        "/offsets/{query:name}",
        tags=["offsets"],
        summary="Spark's startingOffsets: where one query was",
        response_class=Response,
        responses={
            200: {"content": {JSON: {"schema": _OFFSETS}}},
            **QUERY_PROBLEMS,
            503: {"description": "Kafka or the offset store does not answer"},
        },
    )
    async def get_offsets(
        request: Request,
        query: str,
        at: Annotated[
            str | None,
            Query(
                description="As of a time: epoch milliseconds, ISO 8601, or a duration before"
                " now, `2h`. Default: after its last batch."
            ),
        ] = None,
        source: Annotated[
            int | None, Query(ge=0, description="Which of its Kafka sources, if it has several.")
        ] = None,
        edge: Annotated[Edge, Query(description="`startingOffsets` or `endingOffsets`.")] = (
            "starting"
        ),
        on_deleted: Annotated[
            OnDeleted,
            Query(
                description="Where retention has deleted what comes next: `error`, or `earliest`,"
                " what is left; `unchecked` does not look."
            ),
        ] = "error",
    ) -> Response:
        """The query is a name or an id in the offset store; with a token for some queries, one that
        `GET /lag` lists. `Sparklag-Batch-Id` and
        `Sparklag-Processed-At` (epoch milliseconds) name the batch; each `Sparklag-Warning` what is
        lost."""
        if settings.store.url is None:
            raise problems.Problem(
                "no-offset-store", "this service has no offset store: see setting store.url"
            )
        try:
            at_ms = timestamp_ms(at, epoch_ms()) if at is not None else None
        except ValueError as error:
            raise problems.invalid_parameter(f"at: {error}") from error
        is_limited = not principal_of(request).sees_all
        if is_limited:
            # The store does not know who may see what; the view does.
            query = find_query(backend, request, query).event.query_id
        try:
            async with reads, aclosing(open_store(settings.store.url)) as store:
                # The store takes what is no id of its own for a name, maybe of a hidden query.
                if is_limited and query not in [q.query_id for q in await store.queries(query)]:
                    raise UnknownQuery(f"query {query!r} is not in the offset store {store.shown}")
                position = position_of_record(await find_record(store, query, at_ms))
            restored = await restore(position, RestoreOptions(edge, on_deleted, source), settings)
        except (OffsetsError, KafkaUnavailable) as error:
            kind = next(kind for cause, kind in _KINDS.items() if isinstance(error, cause))
            query_ids = error.query_ids if isinstance(error, AmbiguousQuery) else ()
            raise problems.Problem(kind, str(error), query_ids) from error
        response = Response(restored.json, media_type=JSON)
        response.headers["Sparklag-Batch-Id"] = str(restored.position.batch_id)
        response.headers["Sparklag-Processed-At"] = str(restored.position.processed_at)
        for warning in restored.warnings:
            # Names of topics are short ASCII; names of queries may not be.
            plain = printable(warning, 2_000).encode("ascii", "backslashreplace").decode()
            response.headers.append("Sparklag-Warning", plain.strip())
        return response
