"""Metadata with topic ids, which aiokafka lacks, in aiokafka's types (ADR 0017). Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from io import BytesIO
from struct import Struct, error
from typing import Any, Final, NamedTuple

from aiokafka.protocol.metadata import MetadataRequest_v4, MetadataResponse_v4
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
    UnsignedVarInt32,
)

from sparklag_kafka.errors import ResponseUnreadable
from sparklag_kafka.protocol.encoding import PreparedRequest, Versions, newest

_METADATA: Final = 3
_IDS_VERSION: Final = 11
"""The version of Kafka 2.8, with topic ids."""
_OLD_VERSION: Final = 4
"""The first version that can leave topics uncreated, of Kafka 0.11."""

_PARTITION: Final = Struct(">hiii")
_INT32: Final = Struct(">i")
_NO_ID: Final = bytes(16)
_SHARED_REPLICAS: Final = 4_096
"""Partitions with equal replicas share one object; a cache holds this many."""
_MALFORMED: Final = (ValueError, IndexError, error)

Address = tuple[str, int]


class PartitionReplicas(NamedTuple):
    """Node ids, -1 where there is none, and counts."""

    leader: int
    preferred_leader: int
    """The first of its replicas."""
    replicas: int
    in_sync: int


_replicas = lru_cache(_SHARED_REPLICAS)(PartitionReplicas)


class _Uuid(Int64):  # type: ignore[misc]  # aiokafka has no types
    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)


class _Partitions(CompactArray):  # type: ignore[misc]  # aiokafka has no types
    """Decodes to leaders and replicas by partition, four times as fast as CompactArray."""

    def decode(self, data: BytesIO) -> tuple[dict[int, int], dict[int, PartitionReplicas]]:
        leaders, replicas = {}, {}
        count = UnsignedVarInt32.decode(data) - 1
        raw, at = data.getvalue(), data.tell()
        for _ in range(count):
            _, number, leader, _ = _PARTITION.unpack_from(raw, at)
            leaders[number] = leader
            replicas_at = in_sync_at = offline_at = end = at + _PARTITION.size
            # The fast path: short arrays of replicas, in-sync and offline replicas, and no tags.
            for _ in range(3):
                in_sync_at, offline_at = offline_at, end
                length = raw[end]
                if not 0 < length < 0x80:
                    break
                end += 4 * length - 3
            else:
                if raw[end] == 0:
                    at = end + 1
                    length = raw[replicas_at] - 1
                    first = _INT32.unpack_from(raw, replicas_at + 1)[0] if length else -1
                    replicas[number] = _replicas(leader, first, length, raw[in_sync_at] - 1)
                    continue
            data.seek(at)
            replicas[number] = _replicas_of(leader, *self.array_of.decode(data)[4:6])
            at = data.tell()
        data.seek(at)
        return leaders, replicas


_NAME: Final = CompactString("utf-8")
_NODES: Final = CompactArray(Int32)
_TAGS: Final = ("", TaggedFields)
_REQUEST: Final = Schema(
    ("topics", CompactArray(("topic_id", _Uuid), ("topic", _NAME), _TAGS)),
    *(("creation", Boolean), ("authorized_operations", Boolean), _TAGS),
)
_BROKERS: Final = CompactArray(
    *(("node_id", Int32), ("host", _NAME), ("port", Int32), ("rack", _NAME), _TAGS)
)
_HEAD: Final = Schema(
    *(("throttle_time_ms", Int32), ("brokers", _BROKERS)),
    *(("cluster_id", _NAME), ("controller_id", Int32)),
)
_TOPIC: Final = Schema(
    *(("error_code", Int16), ("topic", _NAME), ("topic_id", _Uuid), ("is_internal", Boolean)),
    (
        "partitions",
        _Partitions(
            *(("error_code", Int16), ("partition", Int32), ("leader", Int32), ("epoch", Int32)),
            *(("replicas", _NODES), ("isr", _NODES), ("offline", _NODES), _TAGS),
        ),
    ),
    *(("authorized_operations", Int32), _TAGS),
)
*_OLD_HEAD, _OLD_TOPICS = MetadataResponse_v4.SCHEMA.fields


class MetadataRequest:
    """Metadata of these topics alone (None: all); creates no topic. See `MetadataResponse`."""

    def __init__(self, topics: Sequence[str] | None) -> None:
        self._topics = topics

    def prepare(self, versions: Versions) -> PreparedRequest:
        """The request for a broker that supports `versions`: with topic ids, if it has them."""
        version = newest(versions, _METADATA, (_IDS_VERSION, _OLD_VERSION))
        flexible = version == _IDS_VERSION
        if flexible:
            named = self._topics
            topics: Any = None if named is None else [(_NO_ID, topic, {}) for topic in named]
            body = _REQUEST.encode((topics, False, False, {}))
        else:
            body = MetadataRequest_v4(self._topics, False).encode()
        make_response = partial(MetadataResponse, flexible=flexible)
        return PreparedRequest(_METADATA, version, body, flexible, make_response)


class TopicMetadata(NamedTuple):
    """A topic as a broker describes it; leaders (-1: none) and replicas by partition."""

    name: str
    error_code: int
    topic_id: str | None
    leaders: dict[int, int]
    replicas: dict[int, PartitionReplicas]
    is_internal: bool = False


class MetadataResponse(NamedTuple):
    """A response, not decoded yet; `flexible`: in a flexible version."""

    data: bytes
    flexible: bool

    def read(self) -> tuple[dict[int, Address], Iterator[TopicMetadata]]:
        """Decode the brokers, by node id, and each topic when it is iterated. Both raise
        ResponseUnreadable."""
        data = BytesIO(self.data)
        try:
            if self.flexible:
                _, rows, *_ = _HEAD.decode(data)
            else:
                _, rows, *_ = (field.decode(data) for field in _OLD_HEAD)
        except _MALFORMED as cause:
            raise ResponseUnreadable("the response is malformed") from cause
        brokers = {node: (host or "", port) for node, host, port, *_ in rows or ()}
        return brokers, _topics(data, self.flexible)


def _topics(data: BytesIO, flexible: bool) -> Iterator[TopicMetadata]:
    try:
        count = UnsignedVarInt32.decode(data) - 1 if flexible else Int32.decode(data)
        for _ in range(count):
            topic_id = None
            if flexible:
                error_code, name, raw, is_internal, (leaders, replicas), *_ = _TOPIC.decode(data)
                if raw != _NO_ID:
                    topic_id = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
            else:
                error_code, name, is_internal, rows = _OLD_TOPICS.array_of.decode(data)
                leaders = {number: leader for _, number, leader, *_ in rows or ()}
                replicas = {n: _replicas_of(leader, *nodes) for _, n, leader, *nodes in rows or ()}
            yield TopicMetadata(name or "", error_code, topic_id, leaders, replicas, is_internal)
    except _MALFORMED as cause:
        raise ResponseUnreadable("the response is malformed") from cause


def _replicas_of(leader: int, replicas: Any, in_sync: Any) -> PartitionReplicas:
    first = replicas[0] if replicas else -1
    return _replicas(leader, first, len(replicas or ()), len(in_sync or ()))
