"""The errors of this package.

KafkaUnavailable               no broker answers
MessageTooLarge                Kafka, or its producer, refuses the size of a message
TopicUnavailable               a topic is missing and cannot be created
"""

from __future__ import annotations

from sparklag_schemas import SparklagError


class KafkaUnavailable(SparklagError):
    """No broker answers; the text names the brokers and the cause."""
