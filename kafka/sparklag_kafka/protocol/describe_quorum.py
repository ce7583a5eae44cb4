"""DescribeQuorum of KRaft's metadata, of which only the leader's clock is read. Pure."""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Final, NamedTuple

from aiokafka.protocol.types import (
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

from sparklag_kafka.errors import ResponseUnreadable
from sparklag_kafka.protocol.encoding import PreparedRequest, Versions, newest

_DESCRIBE_QUORUM: Final = 55
_VERSION: Final = 1
"""The first with timestamps, of Kafka 3.3."""
_METADATA_TOPIC: Final = "__cluster_metadata"

_NAME: Final = CompactString("utf-8")
_REQUESTED_PARTITION: Final = Schema(("partition", Int32), ("", TaggedFields))
_REQUESTED_TOPIC: Final = Schema(
    ("topic", _NAME), ("partitions", CompactArray(_REQUESTED_PARTITION)), ("", TaggedFields)
)
_REQUEST: Final = Schema(("topics", CompactArray(_REQUESTED_TOPIC)), ("", TaggedFields))
_REPLICA: Final = Schema(
    *(("replica", Int32), ("log_end_offset", Int64), ("fetched_at", Int64)),
    *(("caught_up_at", Int64), ("", TaggedFields)),
)
_PARTITION: Final = Schema(
    *(("partition", Int32), ("error_code", Int16), ("leader", Int32), ("epoch", Int32)),
    *(("high_watermark", Int64), ("voters", CompactArray(_REPLICA))),
    *(("observers", CompactArray(_REPLICA)), ("", TaggedFields)),
)
_TOPIC: Final = Schema(
    ("topic", _NAME), ("partitions", CompactArray(_PARTITION)), ("", TaggedFields)
)
_RESPONSE: Final = Schema(
    ("error_code", Int16), ("topics", CompactArray(_TOPIC)), ("", TaggedFields)
)


class QuorumRequest:
    """The response is a `QuorumResponse`. `prepare` raises IncompatibleBrokerVersion."""

    def prepare(self, versions: Versions) -> PreparedRequest:
        """The request for a broker that supports `versions`."""
        version = newest(versions, _DESCRIBE_QUORUM, (_VERSION,))
        body = _REQUEST.encode(([(_METADATA_TOPIC, [(0, {})], {})], {}))
        return PreparedRequest(_DESCRIBE_QUORUM, version, body, True, QuorumResponse)


class QuorumResponse(NamedTuple):
    """Not decoded yet."""

    data: bytes

    def leader_time_ms(self) -> int | None:
        """When the leader answered, by its clock, epoch milliseconds: of itself it says that it has
        just caught up. None: there is no right to it, or no leader. Raises ResponseUnreadable."""
        try:
            _, topics, _ = _RESPONSE.decode(BytesIO(self.data))
            for _, partitions, _ in topics or ():
                for _, _, leader, _, _, voters, _, _ in partitions or ():
                    for replica, _, fetched_at, _, _ in voters or ():
                        if replica == leader and fetched_at > 0:
                            return int(fetched_at)
        except (ValueError, struct.error) as error:
            raise ResponseUnreadable("its description of the quorum is malformed") from error
        return None
