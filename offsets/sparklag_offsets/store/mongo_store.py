"""The offset store in MongoDB."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pymongo
from bson.errors import BSONError
from pymongo import ASCENDING, DESCENDING, AsyncMongoClient, UpdateOne
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import ConfigurationError, DocumentTooLarge, InvalidURI, PyMongoError

from sparklag_offsets.errors import NewerSchema, RecordRefused, StoreAway, StoreFull, UnusableStore
from sparklag_offsets.store.batch_record import BatchRecord, KeptQuery, Place, TopicRanges, written
from sparklag_offsets.store.offset_store import Retention
from sparklag_offsets.store.unusable_url import reason
from sparklag_schemas.redaction import shown_url

_SCHEMA: Final = 1
_SERVER_S: Final = 5.0
_TIMEOUT_S: Final = 30.0
"""Of one call."""
_CLOSE_S: Final = 2.0
_FULL: Final = frozenset({14031})
"""OutOfDiskSpace"""
_LONGEST: Final = 300
_NEW: Final = object()
"""What no query is called."""

_BY_PLACE: Final = [("query_id", ASCENDING), ("generation", ASCENDING), ("batch_id", ASCENDING)]
_BY_TIME: Final = [
    ("query_id", ASCENDING),
    ("processed_at", ASCENDING),
    ("generation", ASCENDING),
    ("batch_id", ASCENDING),
]

Document = dict[str, Any]


class MongoStore:
    """See OffsetStore. For one event loop."""

    def __init__(self, url: str) -> None:
        self.shown = shown_url(url)
        try:
            self._client: AsyncMongoClient[Document] = AsyncMongoClient(
                url,
                serverSelectionTimeoutMS=int(_SERVER_S * 1000),
                connectTimeoutMS=int(_SERVER_S * 1000),
                appname="sparklag",
            )
            self._database: AsyncDatabase[Document] = self._client.get_default_database()
        except (ConfigurationError, InvalidURI, ValueError) as error:
            raise UnusableStore(
                f"the offset store's URL {self.shown} cannot be used{reason(error, url)}; it takes"
                " mongodb://user:password@host:port/database, the password percent-encoded"
            ) from None
        self._queries = self._database["sparklag_queries"]
        self._batches = self._database["sparklag_batches"]
        self._names: dict[str, object] = {}
        """Of queries that are in their collection already."""

    async def prepare(self) -> None:
        with _explained(self.shown):
            schema = self._database["sparklag_schema"]
            await schema.update_one(
                {"_id": "version"}, {"$setOnInsert": {"version": _SCHEMA}}, upsert=True
            )
            await self._check_schema()
            await self._queries.create_index([("name", ASCENDING)])
            await self._batches.create_index(_BY_PLACE, unique=True)
            await self._batches.create_index(_BY_TIME)

    async def newest(self, query_ids: Collection[str]) -> dict[str, BatchRecord]:
        found = {}
        for query_id in query_ids:
            record = await self.as_of(query_id, None)
            if record is not None:
                found[query_id] = record
        return found

    async def keep(self, records: Sequence[BatchRecord]) -> None:
        renamed = {
            record.query_id: record
            for record in records
            if self._names.get(record.query_id, _NEW) != record.query
        }
        with _explained(self.shown):
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
            # In order: what is missing after a failure is behind what is there.
            await self._batches.bulk_write([_unless_there(record) for record in records])
        self._names.update((query_id, record.query) for query_id, record in renamed.items())

    async def as_of(self, query_id: str, at_ms: int | None) -> BatchRecord | None:
        wanted: Document = {"query_id": query_id}
        order = _BY_PLACE if at_ms is None else _BY_TIME
        if at_ms is not None:
            wanted["processed_at"] = {"$lte": at_ms}
        with _explained(self.shown):
            found = await self._batches.find_one(
                wanted, sort=[(name, DESCENDING) for name, _ in order]
            )
            if found is None:
                return None
            query = await self._queries.find_one({"_id": query_id})
        return _record(found, query or {})

    async def queries(self, name_or_id: str | None = None) -> list[KeptQuery]:
        with _explained(self.shown):
            await self._check_schema()
            if name_or_id is None:
                listed = await self._queries.find({}).to_list()
            else:
                listed = await self._queries.find({"_id": name_or_id}).to_list()
                listed = listed or await self._queries.find({"name": name_or_id}).to_list()
            listed.sort(key=lambda query: (query["name"] or "", query["_id"]))
            found = []
            for query in listed:
                first, last = await self._end(query["_id"], 1), await self._end(query["_id"], -1)
                if first is not None and last is not None:
                    found.append(KeptQuery(query["_id"], query["name"], first, last))
        return found

    async def prune(self, retention: Retention) -> int:
        deleted = 0
        with _explained(self.shown):
            listed = await self._queries.find({}, {"_id": 1}).to_list()
        for query in listed:
            with _explained(self.shown):
                deleted += await self._prune(query["_id"], retention)
        return deleted

    async def aclose(self) -> None:
        with _explained(self.shown):
            await asyncio.wait_for(self._client.close(), _CLOSE_S)

    async def _check_schema(self) -> None:
        found = await self._database["sparklag_schema"].find_one({"_id": "version"})
        if found is not None and found["version"] > _SCHEMA:
            raise NewerSchema(
                f"the offset store at {self.shown} has schema {found['version']}, and this sparklag"
                f" knows those up to {_SCHEMA}: a newer sparklag made it, upgrade this one"
            )

    async def _end(self, query_id: str, direction: int) -> int | None:
        """When its first record completed (1), or its last (-1)."""
        found = await self._batches.find_one(
            {"query_id": query_id},
            {"processed_at": 1},
            sort=[(name, direction) for name, _ in _BY_TIME],
        )
        return int(found["processed_at"]) if found is not None else None

    async def _prune(self, query_id: str, retention: Retention) -> int:
        mine: Document = {"query_id": query_id}
        latest_first = [(name, DESCENDING) for name, _ in _BY_PLACE]
        place = {"generation": 1, "batch_id": 1}
        last = await self._batches.find_one(mine, place, sort=latest_first)
        old: list[Document] = []
        if retention.before_ms is not None:
            old.append({"processed_at": {"$lt": retention.before_ms}})
        if retention.keep_batches is not None:
            found = self._batches.find(mine, place, sort=latest_first)
            too_many = await found.skip(retention.keep_batches).limit(1).to_list()
            old += [_up_to(first, "$lte") for first in too_many]
        if last is None or not old:
            return 0
        done = await self._batches.delete_many({"$and": [mine, _up_to(last, "$lt"), {"$or": old}]})
        return done.deleted_count


def _unless_there(record: BatchRecord) -> UpdateOne:
    key = f"{record.query_id}/{record.place.generation}/{record.place.batch_id}"
    return UpdateOne({"_id": key}, {"$setOnInsert": _document(record)}, upsert=True)


def _document(record: BatchRecord) -> Document:
    """Its ranges as values, so that they can be asked for."""
    return {
        "query_id": record.query_id,
        "generation": record.place.generation,
        "batch_id": record.place.batch_id,
        "first_batch_id": record.first_batch_id,
        "run_id": record.run_id,
        "processed_at": record.processed_at,
        "observed_at": record.observed_at,
        "is_inferred": record.is_inferred,
        "topics": [
            {name: getattr(topic, name) for name in topic.__struct_fields__}
            for topic in record.topics
        ],
    }


def _record(found: Mapping[str, Any], query: Mapping[str, Any]) -> BatchRecord:
    topics = [
        TopicRanges(
            topic["source"],
            topic["topic"],
            topic["topic_id"],
            topic["bootstrap_servers"],
            [(partition, _int(begin), int(until)) for partition, begin, until in topic["ranges"]],
            topic["assigned"],
        )
        for topic in found["topics"]
    ]
    return BatchRecord(
        query_id=found["query_id"],
        query=query.get("name"),
        cluster=query.get("cluster", "default"),
        run_id=found["run_id"],
        place=Place(int(found["generation"]), int(found["batch_id"])),
        first_batch_id=int(found["first_batch_id"]),
        processed_at=int(found["processed_at"]),
        observed_at=int(found["observed_at"]),
        is_inferred=found["is_inferred"],
        ranges=written(topics),
    )


def _int(found: int | None) -> int | None:
    """What has more than 32 bits comes as a number of MongoDB's own, which nobody else takes."""
    return int(found) if found is not None else None


def _up_to(place: Mapping[str, Any], comparison: str) -> Document:
    generation, batch_id = place["generation"], place["batch_id"]
    return {
        "$or": [
            {"generation": {"$lt": generation}},
            {"generation": generation, "batch_id": {comparison: batch_id}},
        ]
    }


@contextmanager
def _explained(shown: str) -> Iterator[None]:
    """Whatever fails inside is a StoreError that names the store. Credentials are not shown."""
    try:
        # The driver's own bounds are of each answer, and it asks more than once.
        with pymongo.timeout(_TIMEOUT_S):
            yield
    except asyncio.TimeoutError:
        raise StoreAway(f"the offset store at {shown} does not answer") from None
    except (DocumentTooLarge, BSONError) as error:
        raise RecordRefused(f"the offset store at {shown} refuses a record: {error}") from error
    except (PyMongoError, OSError) as error:
        said = " ".join(str(error).split())
        # The driver adds what it knows of every server.
        for added in (" (configured timeouts", ", Timeout:"):
            said = said.partition(added)[0]
        said = said[:_LONGEST]
        if getattr(error, "code", None) in _FULL:
            raise StoreFull(f"the offset store at {shown} has no room: {said}") from error
        raise StoreAway(f"the offset store at {shown}: {said}") from error
