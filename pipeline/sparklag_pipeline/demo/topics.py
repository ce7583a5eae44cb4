"""Create the demo's topics where they are missing."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from aiokafka.errors import KafkaError

from sparklag_kafka.clients.connection import explain_failure
from sparklag_kafka.clients.topic_setup import create_missing
from sparklag_pipeline.errors import PipelineError
from sparklag_schemas.settings import ClusterAccess
from sparklag_schemas.topics import TopicSpec

log = logging.getLogger(__name__)


async def create_topics(bootstrap_servers: str, specs: Sequence[TopicSpec]) -> None:
    """Create those that are missing; the others stay as they are.

    Raises PipelineError where Kafka cannot be used, TopicUnavailable where it refuses.
    """
    access = ClusterAccess(bootstrap_servers)
    try:
        created = await create_missing(access, specs)
    except (KafkaError, OSError) as error:
        cause = await explain_failure(access) or str(error)
        raise PipelineError(f"cannot use Kafka at {cause}") from error
    for name in created:
        log.info("created topic %s", name)
