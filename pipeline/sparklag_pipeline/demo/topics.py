"""The demo's topics, created where they are missing."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sparklag_kafka.clients.client_options import explain_error
from sparklag_kafka.clients.topic_setup import create_missing
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_pipeline.errors import PipelineError
from sparklag_schemas.settings import ClusterAccess, KafkaSettings
from sparklag_schemas.topics import TopicSpec

log = logging.getLogger(__name__)


def demo_topic(name: str, partitions: int) -> TopicSpec:
    """A topic that keeps its records for an hour."""
    return TopicSpec(
        name=name,
        partitions=partitions,
        replication_factor=None,
        cleanup_policy=frozenset({"delete"}),
        config={"cleanup.policy": "delete", "retention.ms": "3600000"},
    )


async def create_topics(
    bootstrap_servers: str, specs: Sequence[TopicSpec], kafka: KafkaSettings | None = None
) -> None:
    """Create those that are missing; the others stay as they are.

    Raises PipelineError where Kafka cannot be used, TopicUnavailable where it refuses.
    """
    access = ClusterAccess(bootstrap_servers, kafka or KafkaSettings())
    try:
        created = await create_missing(access, specs)
    except KAFKA_FAILURES as error:
        cause = await explain_error(error, access)
        raise PipelineError(f"cannot use Kafka at {cause}") from error
    for name in created:
        log.info("created topic %s", name)
