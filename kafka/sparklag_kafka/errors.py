"""What goes wrong between sparklag and Kafka, and how it is reported.

SparklagError
    KafkaUnavailable     no broker responds, or a message was not acknowledged in time
    MessageTooLarge      Kafka, or its producer, refuses the size of a message
    TopicUnavailable     a topic is missing and cannot be created
    RecordsUnreadable    the timestamp of a record cannot be read
    Undecodable          compressed data is malformed, or becomes too large
aiokafka's KafkaError
    ResponseUnreadable   a response is not what the protocol prescribes
    OneGroupPerRequest   the broker takes one group in a request, not several
OSError
    UntrustedBroker      the cluster names a broker that must not see the password

A call to Kafka fails with one of KAFKA_FAILURES; `clients.connection.explain_error` finds the
cause by connecting anew, `error_text` and `broker_error_text` take the error as it is.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiokafka.errors import (
    GroupAuthorizationFailedError,
    IncompatibleBrokerVersion,
    KafkaError,
    TopicAuthorizationFailedError,
)

from sparklag_schemas import SparklagError


class KafkaUnavailable(SparklagError):
    """No broker responds, or not in time; the text names the cause."""


class MessageTooLarge(SparklagError):
    """The topic refuses a message of this size, and always will."""


class TopicUnavailable(SparklagError):
    """A topic is missing and could not be created; the text says why, and what to do."""


class RecordsUnreadable(SparklagError):
    """The timestamp of a record cannot be read; the text says why."""


class Undecodable(SparklagError):
    """The data is not in the codec's format, or decompresses to too many bytes."""


class ResponseUnreadable(KafkaError):  # type: ignore[misc]  # aiokafka has no types
    """A response is not what the protocol prescribes: the rest of it is discarded."""


class OneGroupPerRequest(IncompatibleBrokerVersion):  # type: ignore[misc]  # aiokafka has no types
    """The broker does not take several groups in one request."""


class UntrustedBroker(OSError):
    """The cluster names a broker that must not see the password; the text says what to do."""


KAFKA_FAILURES: Final = (KafkaError, KafkaUnavailable, OSError, asyncio.TimeoutError)
"""What a call to Kafka may fail with, whatever client makes it."""


def error_text(error: BaseException) -> str:
    """Its cause where the type tells it, else its own text, or its type's name."""
    match error:
        case TopicAuthorizationFailedError():
            return "no right to it"
        case GroupAuthorizationFailedError():
            return f"no right to use group {', '.join(map(str, error.args))}"
        case asyncio.TimeoutError() if not str(error):
            return "no answer in time"
    return str(error) or type(error).__name__


def broker_error_text(node_id: int, error: BaseException, timeout_s: float) -> str:
    """Why a request to a broker failed, in one sentence."""
    if isinstance(error, asyncio.TimeoutError):
        return f"broker {node_id} did not answer within {timeout_s:g} s"
    return f"broker {node_id}: {error_text(error)}"
