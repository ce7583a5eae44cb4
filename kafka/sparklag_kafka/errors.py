"""Failures between sparklag and Kafka, and how they are reported.

SparklagError
    KafkaUnavailable     no broker responds, or a message was not acknowledged in time
    MessageTooLarge      Kafka, or its producer, refuses the size of a message
    TopicUnavailable     a topic is missing and cannot be created
    RecordsUnreadable    the timestamp of a record cannot be read
    Undecodable          compressed data is malformed, or decompresses to too many bytes
aiokafka's KafkaError
    ResponseUnreadable   a response is not what the protocol prescribes: its rest is discarded
    OneGroupPerRequest   the broker takes one group in a request, not several
OSError
    UntrustedBroker      the cluster names a broker that must not see the password

A call to Kafka fails with one of KAFKA_FAILURES. `access.explain_error` finds the cause by
connecting anew; `error_text` and `broker_error_text` describe the error alone.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiokafka import errors
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError

from sparklag_schemas import SparklagError


class KafkaUnavailable(SparklagError):
    """The text names the cause."""


class MessageTooLarge(SparklagError):
    """The topic refuses a message of this size, and always will."""


class TopicUnavailable(SparklagError):
    """The text has the reason, and what to do."""


class RecordsUnreadable(SparklagError):
    """The text has the reason."""


class Undecodable(SparklagError):
    """The text has the reason."""


class ResponseUnreadable(KafkaError):  # type: ignore[misc]  # aiokafka has no types
    """The text has the reason."""


class OneGroupPerRequest(IncompatibleBrokerVersion):  # type: ignore[misc]  # aiokafka has no types
    """The broker does not take several groups in one request."""


class UntrustedBroker(OSError):
    """The text has the remedy."""


KAFKA_FAILURES: Final = (KafkaError, KafkaUnavailable, OSError, asyncio.TimeoutError)
"""The errors of a call to Kafka, whatever client makes it."""

# Error codes in responses, as far as anything depends on one.
NONE: Final[int] = errors.NoError.errno
OFFSET_OUT_OF_RANGE: Final[int] = errors.OffsetOutOfRangeError.errno
UNKNOWN_TOPIC: Final[int] = errors.UnknownTopicOrPartitionError.errno
LEADER_NOT_AVAILABLE: Final[int] = errors.LeaderNotAvailableError.errno
NOT_LEADER: Final[int] = errors.NotLeaderForPartitionError.errno
COORDINATOR_LOADING: Final[int] = errors.GroupLoadInProgressError.errno
COORDINATOR_NOT_AVAILABLE: Final[int] = errors.GroupCoordinatorNotAvailableError.errno
NOT_COORDINATOR: Final[int] = errors.NotCoordinatorForGroupError.errno
INVALID_TOPIC: Final[int] = errors.InvalidTopicError.errno
TOPIC_FORBIDDEN: Final[int] = errors.TopicAuthorizationFailedError.errno
GROUP_FORBIDDEN: Final[int] = errors.GroupAuthorizationFailedError.errno
UNKNOWN_GROUP: Final[int] = errors.GroupIdNotFound.errno


def error_name(code: int) -> str:
    """aiokafka's name of an error code."""
    name: str = errors.for_code(code).__name__
    return name


def is_metadata_stale(code: int) -> bool:
    """Return whether a partition with this error may have another leader, or be gone."""
    return bool(errors.for_code(code).invalid_metadata)


def error_text(error: BaseException) -> str:
    """The cause where the type has one, else the error's own text, or the name of its type."""
    match error:
        case errors.TopicAuthorizationFailedError():
            return "no right to it"
        case errors.GroupAuthorizationFailedError():
            return f"no right to use group {', '.join(map(str, error.args))}"
        case asyncio.TimeoutError() if not str(error):
            return "no answer in time"
    return str(error) or type(error).__name__


def broker_error_text(node_id: int, error: BaseException, timeout_s: float) -> str:
    """A sentence about why a request to a broker failed."""
    if isinstance(error, asyncio.TimeoutError):
        return f"broker {node_id} did not answer within {timeout_s:g} s"
    return f"broker {node_id}: {error_text(error)}"
