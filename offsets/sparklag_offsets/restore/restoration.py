"""From a kept position to Spark's JSON, by way of Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from sparklag_kafka.brokers.log_bounds import read_bounds
from sparklag_offsets.checkpoints import CheckpointStore, read_checkpoint
from sparklag_offsets.errors import RestoreError
from sparklag_offsets.restore.kept_position import KeptPosition, of_checkpoint, of_record
from sparklag_offsets.restore.lookup import find_record
from sparklag_offsets.restore.spark_offsets import Edge, OnDeleted, checked, unchecked
from sparklag_offsets.store.offset_store import OffsetStore
from sparklag_schemas import ClusterAccess, Offsets, Settings
from sparklag_schemas.clusters import ClusterNames, access_by_address
from sparklag_schemas.printable import printable
from sparklag_schemas.redaction import redact_location


@dataclass(frozen=True)
class Restored:
    """What a query is to begin with, or to end with."""

    position: KeptPosition
    """Of the one source."""
    offsets: Offsets
    warnings: tuple[str, ...] = ()

    @property
    def json(self) -> str:
        """Spark's `startingOffsets`, or `endingOffsets`."""
        return msgspec.json.encode(self.offsets).decode()


@dataclass(frozen=True)
class Wanted:
    """How a position is to be given back."""

    edge: Edge = "starting"
    on_deleted: OnDeleted = "error"
    source: int | None = None
    topics: Collection[str] | None = None
    bootstrap_servers: str | None = None
    """Where the topics are. None: where the query read them."""


async def from_store(
    store: OffsetStore, query: str, at_ms: int | None, wanted: Wanted, settings: Settings
) -> Restored:
    """Where a query (its name, or its id) was at that moment; None: after its last batch.

    Raises StoreError, RestoreError, KafkaUnavailable.
    """
    record = await find_record(store, query, at_ms)
    return await restore(of_record(record), wanted, settings)


async def from_checkpoint(location: str, wanted: Wanted, settings: Settings) -> Restored:
    """Where the query of that checkpoint is.

    Raises CheckpointError, RestoreError, KafkaUnavailable.
    """
    checkpoints = CheckpointStore(settings.checkpoints.storage, settings.checkpoints.timeout_s)
    loop = asyncio.get_running_loop()
    try:
        found = await loop.run_in_executor(None, read_checkpoint, checkpoints, location)
    finally:
        checkpoints.close()
    return await restore(of_checkpoint(found, redact_location(location)), wanted, settings)


async def restore(position: KeptPosition, wanted: Wanted, settings: Settings) -> Restored:
    """Raises RestoreError; KafkaUnavailable where no broker answers."""
    if isinstance(wanted.topics, str) or (wanted.topics is not None and not wanted.topics):
        # A name is a collection too: of its letters.
        raise RestoreError(f"topics takes a list of names, at least one; it got {wanted.topics!r}")
    position = position.of_source(wanted.source, wanted.topics)
    if wanted.on_deleted == "unchecked":
        return Restored(position, unchecked(position, wanted.topics))
    topics = wanted.topics if wanted.topics is not None else {t.topic for t in position.topics}
    bounds = await read_bounds(topics, _access_to(position, wanted, settings))
    offsets, warnings = checked(position, bounds, wanted.edge, wanted.on_deleted, wanted.topics)
    return Restored(position, offsets, tuple(warnings))


def _access_to(position: KeptPosition, wanted: Wanted, settings: Settings) -> ClusterAccess:
    """To the brokers that the caller names; else to those of the settings that it was read from."""
    if wanted.bootstrap_servers:
        return access_by_address(settings, wanted.bootstrap_servers)
    kept = next((t.bootstrap_servers for t in position.topics if t.bootstrap_servers), None)
    access = ClusterNames(settings).access_to(kept)
    if access is not None:
        return access
    if kept is None:
        raise RestoreError(
            f"{position.shown}: nobody says where its topics are: bootstrap_servers is not set"
        )
    raise RestoreError(
        f"{position.shown} read its topics at {printable(kept, 200)}, which no setting names: add"
        " it to bootstrap_servers, addresses or clusters"
    )
