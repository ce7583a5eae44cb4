"""Kafka's Metadata, encoded and decoded by hand: aiokafka's has no topic ids. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from struct import Struct, error
from typing import Final, NamedTuple

from sparklag_kafka.errors import ResponseUnreadable
from sparklag_kafka.protocol.encoding import (
    PreparedRequest,
    Reader,
    Versions,
    compact_string,
    newest,
    string,
    varint,
)

_METADATA: Final = 3
_IDS_VERSION: Final = 11
"""With topic ids, of Kafka 2.8."""
_OLD_VERSION: Final = 4
"""The first that can leave topics uncreated, of Kafka 0.11."""
_MIN_ITEM_SIZE: Final = 8
"""Bytes of a broker, or of a topic."""

_INT32 = Struct(">i")
_PARTITION = {True: Struct(">hiii"), False: Struct(">hii")}
_NO_ID: Final = bytes(16)
_SHARED_REPLICAS: Final = 4_096
"""Partitions whose replicas are alike share one object, of so many that were read last."""

Address = tuple[str, int]


class MetadataRequest:
    """Metadata of these topics alone, none of which is created. See `MetadataResponse`."""

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = topics

    def prepare(self, versions: Versions) -> PreparedRequest:
        """The request for a broker that supports `versions`: with topic ids, if it has them."""
        version = newest(versions, _METADATA, (_IDS_VERSION, _OLD_VERSION))
        flexible = version == _IDS_VERSION
        if flexible:
            names = (_NO_ID + compact_string(topic) + b"\0" for topic in self._topics)
            # Neither creation nor authorized operations, and no tags.
            body = b"".join((varint(len(self._topics) + 1), *names, b"\0\0\0"))
        else:
            body = b"".join((_INT32.pack(len(self._topics)), *map(string, self._topics), b"\0"))
        make_response = partial(MetadataResponse, flexible=flexible)
        return PreparedRequest(_METADATA, version, body, flexible, make_response)


class PartitionReplicas(NamedTuple):
    """Node ids, -1 where there is none, and counts."""

    leader: int
    preferred_leader: int
    """The first of its replicas."""
    replicas: int
    in_sync: int


_replicas = lru_cache(_SHARED_REPLICAS)(PartitionReplicas)


class TopicMetadata(NamedTuple):
    """A topic as a broker describes it; `leaders` by partition, -1 where there is none."""

    name: str
    error_code: int
    topic_id: str | None
    leaders: dict[int, int]
    replicas: dict[int, PartitionReplicas]
    """By partition."""


class MetadataResponse(NamedTuple):
    """A response, not decoded yet; `flexible` is its newer form."""

    data: bytes
    flexible: bool

    def read(self) -> tuple[dict[int, Address], Iterator[TopicMetadata]]:
        """Decode the brokers, by node id, and the topics, each when it is iterated: both may raise
        ResponseUnreadable."""
        reader = _MetadataReader(self.data, self.flexible)
        reader.skip(4)  # the throttle time
        brokers = {}
        for _ in range(reader.length(_MIN_ITEM_SIZE)):
            node = reader.int32()
            host = reader.string()
            brokers[node] = (host, reader.int32())
            reader.string()  # the rack
            reader.tags()
        reader.string()  # the cluster's id
        reader.skip(4)  # the controller
        return brokers, (reader.topic() for _ in range(reader.length(_MIN_ITEM_SIZE)))


class _MetadataReader(Reader):
    def topic(self) -> TopicMetadata:
        try:
            return self._topic()
        except (error, IndexError) as cause:
            raise ResponseUnreadable("the response is truncated") from cause

    def _topic(self) -> TopicMetadata:
        data, flexible, partition = self.data, self.flexible, _PARTITION[self.flexible]
        error_code = self.int16()
        name = self.string()
        topic_id = None
        if flexible:
            began = self.skip(16)
            raw = data[began : began + 16]
            topic_id = None if raw == _NO_ID else _id_text(raw)
        self.skip(1)  # whether it is internal
        leaders, replicas = {}, {}
        for _ in range(self.length(partition.size)):
            _, number, leader, *_ = partition.unpack_from(data, self.at)
            leaders[number] = leader
            replicas_at = in_sync_at = offline_at = at = self.at + partition.size
            # The fast path: short arrays of replicas, in sync and offline ones, and no tags.
            for _ in range(3 if flexible else 0):
                in_sync_at, offline_at = offline_at, at
                count = data[at]
                if not 0 < count < 0x80:
                    break
                at += 4 * count - 3
            else:
                if flexible and data[at] == 0:
                    self.at = at + 1
                    count = data[replicas_at] - 1
                    first = _INT32.unpack_from(data, replicas_at + 1)[0] if count else -1
                    replicas[number] = _replicas(leader, first, count, data[in_sync_at] - 1)
                    continue
            self.skip(partition.size)
            count, first = self._numbers()
            in_sync, _ = self._numbers()
            replicas[number] = _replicas(leader, first, count, in_sync)
            if flexible:
                self._numbers()
                self.tags()
        if flexible:
            self.skip(4)  # authorized operations
            self.tags()
        return TopicMetadata(name, error_code, topic_id, leaders, replicas)

    def _numbers(self) -> tuple[int, int]:
        """Skip an array of int32: its length, and the first of them."""
        count = self.length(4)
        began = self.skip(4 * count)
        return count, _INT32.unpack_from(self.data, began)[0] if count else -1


def _id_text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
