"""The requests that sparklag sends, by itself or by aiokafka, and what is lost where a broker does
not take one. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from sparklag_kafka.errors import RequestNotTaken


class SentRequest(NamedTuple):
    """A request, the versions of it that are sent, and what is lost without them."""

    key: int
    name: str
    lowest: int
    highest: int
    lost: str = "sparklag cannot work with this broker"

    @property
    def text(self) -> str:
        return f"{self.name} {' to '.join(dict.fromkeys((str(self.lowest), str(self.highest))))}"


SENT_REQUESTS: Final = (
    SentRequest(0, "Produce", 3, 8),
    SentRequest(1, "Fetch", 4, 11),
    SentRequest(2, "ListOffsets", 2, 3),
    SentRequest(3, "Metadata", 4, 5),
    SentRequest(3, "Metadata", 11, 11, "a topic that is created anew is not known by its id"),
    SentRequest(8, "OffsetCommit", 2, 3),
    SentRequest(9, "OffsetFetch", 1, 3),
    SentRequest(9, "OffsetFetch", 8, 8, "the offsets of each group are a request of their own"),
    SentRequest(10, "FindCoordinator", 0, 1),
    SentRequest(11, "JoinGroup", 0, 5),
    SentRequest(12, "Heartbeat", 0, 1),
    SentRequest(13, "LeaveGroup", 0, 1, "an instance that ends is replaced only after a timeout"),
    SentRequest(14, "SyncGroup", 0, 3),
    SentRequest(15, "DescribeGroups", 0, 0, "members of consumer groups are not seen"),
    SentRequest(16, "ListGroups", 0, 2, "consumer groups are not found"),
    SentRequest(17, "SaslHandshake", 0, 1, "no client can log in by SASL"),
    SentRequest(19, "CreateTopics", 0, 3, "missing topics are not created"),
    SentRequest(22, "InitProducerId", 0, 0, "a retry may write a record twice"),
    SentRequest(32, "DescribeConfigs", 0, 2, "own topics' settings are not checked"),
    SentRequest(36, "SaslAuthenticate", 0, 1, "why a broker refuses a login is not known"),
    SentRequest(69, "ConsumerGroupDescribe", 0, 0, "groups of the new protocol are not seen"),
)
CANNOT_WORK: Final = SENT_REQUESTS[0].lost


def lacking(versions: Mapping[int, tuple[int, int]]) -> Iterator[SentRequest]:
    """The requests that a broker with these versions, by API key, does not take."""
    for request in SENT_REQUESTS:
        lowest, highest = versions.get(request.key, (0, -1))
        if max(lowest, request.lowest) > min(highest, request.highest):
            yield request


def require_needed(versions: Mapping[int, tuple[int, int]]) -> None:
    """Raises RequestNotTaken where sparklag cannot work with a broker."""
    names = [request.text for request in lacking(versions) if request.lost == CANNOT_WORK]
    if names:
        raise RequestNotTaken(f"{CANNOT_WORK}: it takes no {', '.join(names)}")


def not_taken(key: int) -> RequestNotTaken:
    """The error of a request that a broker does not take."""
    request = next(request for request in SENT_REQUESTS if request.key == key)
    return RequestNotTaken(f"the broker takes no {request.text}: {request.lost}")
