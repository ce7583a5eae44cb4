"""Failures between sparklag and Kafka, and how they are reported.

SparklagError
    KafkaUnavailable     no broker responds, or a message was not acknowledged in time
    MessageTooLarge      Kafka, or its producer, refuses the size of a message
    TopicUnavailable     a topic is missing and cannot be created
    RecordsUnreadable    the timestamp of a record cannot be read
    Undecodable          compressed data is malformed, or decompresses to too many bytes
aiokafka's KafkaError
    RequestNotTaken      the broker does not take a request, in versions that sparklag sends
    ResponseUnreadable   a response is not what the protocol prescribes: its rest is discarded
OSError
    UntrustedBroker      the cluster names a broker that must not see the password
    LoginUnavailable     a password, token or certificate cannot be had; a SettingsError too

A call to Kafka fails with one of KAFKA_FAILURES. `access.explain_error` finds the cause by
connecting anew; `error_text` and `broker_error_text` describe the error alone.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiokafka import errors
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError

from sparklag_schemas import SettingsError, SparklagError


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


class RequestNotTaken(IncompatibleBrokerVersion):  # type: ignore[misc]  # aiokafka has no types
    """The text names the request, and what is lost."""


class UntrustedBroker(OSError):
    """The text has the remedy."""


class LoginUnavailable(SettingsError, OSError):
    """The text has the reason. A SettingsError at the start, and a failed connection later."""


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


# Kafka's names of the codes that aiokafka does not have, or names otherwise.
_SINCE_73: Final = """
TOPIC_DELETION_DISABLED FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH UNSUPPORTED_COMPRESSION_TYPE
STALE_BROKER_EPOCH OFFSET_NOT_AVAILABLE MEMBER_ID_REQUIRED PREFERRED_LEADER_NOT_AVAILABLE
GROUP_MAX_SIZE_REACHED FENCED_INSTANCE_ID ELIGIBLE_LEADERS_NOT_AVAILABLE ELECTION_NOT_NEEDED
NO_REASSIGNMENT_IN_PROGRESS GROUP_SUBSCRIBED_TO_TOPIC INVALID_RECORD UNSTABLE_OFFSET_COMMIT
THROTTLING_QUOTA_EXCEEDED PRODUCER_FENCED RESOURCE_NOT_FOUND DUPLICATE_RESOURCE
UNACCEPTABLE_CREDENTIAL INCONSISTENT_VOTER_SET INVALID_UPDATE_VERSION FEATURE_UPDATE_FAILED
PRINCIPAL_DESERIALIZATION_FAILURE SNAPSHOT_NOT_FOUND POSITION_OUT_OF_RANGE UNKNOWN_TOPIC_ID
DUPLICATE_BROKER_REGISTRATION BROKER_ID_NOT_REGISTERED INCONSISTENT_TOPIC_ID
INCONSISTENT_CLUSTER_ID TRANSACTIONAL_ID_NOT_FOUND FETCH_SESSION_TOPIC_ID_ERROR INELIGIBLE_REPLICA
NEW_LEADER_ELECTED OFFSET_MOVED_TO_TIERED_STORAGE FENCED_MEMBER_EPOCH UNRELEASED_INSTANCE_ID
UNSUPPORTED_ASSIGNOR STALE_MEMBER_EPOCH MISMATCHED_ENDPOINT_TYPE UNSUPPORTED_ENDPOINT_TYPE
UNKNOWN_CONTROLLER_ID UNKNOWN_SUBSCRIPTION_ID TELEMETRY_TOO_LARGE INVALID_REGISTRATION
TRANSACTION_ABORTABLE INVALID_RECORD_STATE SHARE_SESSION_NOT_FOUND INVALID_SHARE_SESSION_EPOCH
FENCED_STATE_EPOCH INVALID_VOTER_KEY DUPLICATE_VOTER VOTER_NOT_FOUND INVALID_REGULAR_EXPRESSION
REBOOTSTRAP_REQUIRED STREAMS_INVALID_TOPOLOGY STREAMS_INVALID_TOPOLOGY_EPOCH
STREAMS_TOPOLOGY_FENCED SHARE_SESSION_LIMIT_REACHED
"""
_NAMES = dict(enumerate(_SINCE_73.split(), 73))
_NAMES |= {-1: "UNKNOWN_SERVER_ERROR", 6: "NOT_LEADER_OR_FOLLOWER", 10: "MESSAGE_TOO_LARGE"}
_NAMES |= {13: "NETWORK_EXCEPTION", 17: "INVALID_TOPIC_EXCEPTION", 39: "INVALID_REPLICA_ASSIGNMENT"}
for _code, _name in _NAMES.items():
    # aiokafka raises UnknownError, without the code, for codes that it does not have. Whoever
    # handles an UnknownError handles these too.
    _type = type(_name, (errors.UnknownError,), {"errno": _code, "message": _name})
    errors.kafka_errors.setdefault(_code, _type)
# Azure Event Hubs answers the first one.
COMPRESSION_REFUSED: Final = (errors.UnsupportedForMessageFormatError, errors.for_code(76))


def error_name(code: int) -> str:
    known = errors.kafka_errors.get(code)
    return _NAMES.get(code) or (known.message if known else f"error {code}")


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
        case errors.BrokerResponseError():
            return ": ".join((error_name(error.errno), *map(str, filter(None, error.args))))
        case IncompatibleBrokerVersion() if error.args:
            return str(error.args[0])
        case asyncio.TimeoutError() if not str(error):
            return "no answer in time"
    return str(error) or type(error).__name__


def broker_error_text(node_id: int, error: BaseException, timeout_s: float) -> str:
    """A sentence about why a request to a broker failed."""
    if isinstance(error, asyncio.TimeoutError):
        return f"broker {node_id} did not answer within {timeout_s:g} s"
    return f"broker {node_id}: {error_text(error)}"
