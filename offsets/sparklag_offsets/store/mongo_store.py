"""The offset store in MongoDB."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from typing import Any, Final

import pymongo
from bson.codec_options import TypeDecoder, TypeRegistry
from bson.errors import BSONError
from bson.int64 import Int64
from msgspec.structs import asdict
from pymongo import ASCENDING, DESCENDING, AsyncMongoClient, UpdateOne
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import ConfigurationError, DocumentTooLarge, InvalidURI, PyMongoError

from sparklag_offsets.errors import NewerSchema, RecordRefused, StoreAway, StoreError
from sparklag_offsets.store.batch_record import (
    BatchRecord,
    RecordedQuery,
    Retention,
    TopicRanges,
    encode_ranges,
    unusable_url,
)
from sparklag_schemas.text.locations import shown_url

_SCHEMA: Final = 1
_CONNECT_S: Final = 5.0
_TIMEOUT_S: Final = 30.0
"""The limit of one call."""
_CLOSE_S: Final = 2.0
_MAX_TEXT: Final = 300
_NO_NAME: Final = object()

_BY_KEY: Final = [("query_id", ASCENDING), ("generation", ASCENDING), ("batch_id", ASCENDING)]
_BY_TIME: Final = [_BY_KEY[0], ("processed_at", ASCENDING), *_BY_KEY[1:]]

Document = dict[str, Any]
_FIELDS: Final = [
    field.name for field in fields(BatchRecord) if field.name not in ("query", "cluster", "ranges")
]
"""Fields that a record and its document have in common."""


class MongoStore:
    """See OffsetStore. For one event loop."""

    def __init__(self, url: str) -> None:
        self.shown = shown_url(url)
        try:
            self._client: AsyncMongoClient[Document] = AsyncMongoClient(
                url,
                serverSelectionTimeoutMS=int(_CONNECT_S * 1000),
                connectTimeoutMS=int(_CONNECT_S * 1000),
                appname="sparklag",
                type_registry=TypeRegistry([_PlainInt()]),
            )
            self._database: AsyncDatabase[Document] = self._client.get_default_database()
        except (ConfigurationError, InvalidURI, ValueError) as error:
            form = "mongodb://user:password@host:port/database, the password percent-encoded"
            raise unusable_url(url, error, form) from None
        self._queries = self._database["sparklag_queries"]
        self._batches = self._database["sparklag_batches"]
        self._names: dict[str, object] = {}
        """Names of the stored queries, by id."""

    async def prepare(self) -> None:
        with _errors_translated(self.shown):
            schema = self._database["sparklag_schema"]
            await schema.update_one(
                {"_id": "version"}, {"$setOnInsert": {"version": _SCHEMA}}, upsert=True
            )
            await self._check_schema()
            await self._queries.create_index([("name", ASCENDING)])
            await self._batches.create_index(_BY_KEY, unique=True)
            await self._batches.create_index(_BY_TIME)

    async def newest(self, query_ids: Collection[str]) -> dict[str, BatchRecord]:
        records = {query_id: await self.as_of(query_id, None) for query_id in query_ids}
        return {query_id: record for query_id, record in records.items() if record is not None}

    async def write(self, records: Sequence[BatchRecord]) -> None:
        renamed = {
            record.query_id: record
            for record in records
            if self._names.get(record.query_id, _NO_NAME) != record.query
        }
        with _errors_translated(self.shown):
            if renamed:
                await self._queries.bulk_write(
                    [
                        UpdateOne(
                            {"_id": query_id},
                            {"$set": {"name": record.query, "cluster": record.cluster}},
                            upsert=True,
                        )
                        for query_id, record in renamed.items()
                    ]
                )
            # Ordered: after a failure only the last ones are missing.
            await self._batches.bulk_write(
                [
                    UpdateOne(
                        {"_id": f"{record.query_id}/{record.generation}/{record.batch_id}"},
                        {"$setOnInsert": _document(record)},
                        upsert=True,
                    )
                    for record in records
                ]
            )
        self._names.update((query_id, record.query) for query_id, record in renamed.items())

    async def as_of(self, query_id: str, at_ms: int | None) -> BatchRecord | None:
        condition: Document = {"query_id": query_id}
        order = _BY_KEY if at_ms is None else _BY_TIME
        if at_ms is not None:
            condition["processed_at"] = {"$lte": at_ms}
        with _errors_translated(self.shown):
            document = await self._batches.find_one(
                condition, sort=[(name, DESCENDING) for name, _ in order]
            )
            if document is None:
                return None
            query = await self._queries.find_one({"_id": query_id})
        return _record(document, query or {})

    async def queries(self, name_or_id: str | None = None) -> list[RecordedQuery]:
        with _errors_translated(self.shown):
            await self._check_schema()
            if name_or_id is None:
                listed = await self._queries.find({}).to_list()
            else:
                listed = await self._queries.find({"_id": name_or_id}).to_list()
                listed = listed or await self._queries.find({"name": name_or_id}).to_list()
            listed.sort(key=lambda query: (query["name"] or "", query["_id"]))
            recorded = []
            for query in listed:
                first = await self._processed_at(query["_id"], ASCENDING)
                last = await self._processed_at(query["_id"], DESCENDING)
                if first is not None and last is not None:
                    recorded.append(RecordedQuery(query["_id"], query["name"], first, last))
        return recorded

    async def prune(self, retention: Retention) -> int:
        deleted = 0
        with _errors_translated(self.shown):
            listed = await self._queries.find({}, {"_id": 1}).to_list()
        for query in listed:
            with _errors_translated(self.shown):
                deleted += await self._prune(query["_id"], retention)
        return deleted

    async def aclose(self) -> None:
        with suppress(StoreError), _errors_translated(self.shown):
            await asyncio.wait_for(self._client.close(), _CLOSE_S)

    async def _check_schema(self) -> None:
        schema = await self._database["sparklag_schema"].find_one({"_id": "version"})
        if schema is not None and schema["version"] > _SCHEMA:
            raise NewerSchema(self.shown, schema["version"], _SCHEMA)

    async def _processed_at(self, query_id: str, direction: int) -> int | None:
        """When the query's first record completed, or, in descending direction, its last."""
        batch = await self._batches.find_one(
            {"query_id": query_id},
            {"processed_at": 1},
            sort=[(name, direction) for name, _ in _BY_TIME],
        )
        return int(batch["processed_at"]) if batch is not None else None

    async def _prune(self, query_id: str, retention: Retention) -> int:
        of_query: Document = {"query_id": query_id}
        newest_first = [(name, DESCENDING) for name, _ in _BY_KEY]
        key = {"generation": 1, "batch_id": 1}
        last = await self._batches.find_one(of_query, key, sort=newest_first)
        old: list[Document] = []
        if retention.before_ms is not None:
            old.append({"processed_at": {"$lt": retention.before_ms}})
        if retention.keep_batches is not None:
            excess = self._batches.find(of_query, key, sort=newest_first)
            newest_excess = await excess.skip(retention.keep_batches).limit(1).to_list()
            old += [_up_to(batch, "$lte") for batch in newest_excess]
        if last is None or not old:
            return 0
        condition = {"$and": [of_query, _up_to(last, "$lt"), {"$or": old}]}
        return (await self._batches.delete_many(condition)).deleted_count


def _document(record: BatchRecord) -> Document:
    """The document of a record, with its ranges as values that can be queried."""
    topics = [asdict(topic) for topic in record.topics]
    return {name: getattr(record, name) for name in _FIELDS} | {"topics": topics}


def _record(batch: Mapping[str, Any], query: Mapping[str, Any]) -> BatchRecord:
    return BatchRecord(
        query=query.get("name"),
        cluster=query.get("cluster", "default"),
        ranges=encode_ranges(TopicRanges(**topic) for topic in batch["topics"]),
        **{name: batch[name] for name in _FIELDS},
    )


class _PlainInt(TypeDecoder):
    """Decodes MongoDB's Int64 as int: msgspec does not encode Int64."""

    bson_type = Int64

    def transform_bson(self, value: int) -> int:
        return int(value)


def _up_to(batch: Mapping[str, Any], comparison: str) -> Document:
    generation, batch_id = batch["generation"], batch["batch_id"]
    return {
        "$or": [
            {"generation": {"$lt": generation}},
            {"generation": generation, "batch_id": {comparison: batch_id}},
        ]
    }


@contextmanager
def _errors_translated(shown: str) -> Iterator[None]:
    """Translate errors to StoreError, with the store's name and without credentials."""
    try:
        # The driver's own timeouts are for one request, and a call makes several.
        with pymongo.timeout(_TIMEOUT_S):
            yield
    except asyncio.TimeoutError:
        raise StoreAway(f"the offset store at {shown} does not answer") from None
    except (DocumentTooLarge, BSONError) as error:
        raise RecordRefused(f"the offset store at {shown} refuses a record: {error}") from error
    except (PyMongoError, OSError) as error:
        reason = " ".join(str(error).split())
        # The driver adds the state of every server.
        for appendix in (" (configured timeouts", ", Timeout:"):
            reason = reason.partition(appendix)[0]
        raise StoreAway(f"the offset store at {shown}: {reason[:_MAX_TEXT]}") from error
