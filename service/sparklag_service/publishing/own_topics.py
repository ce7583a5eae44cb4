"""sparklag's own topics and their writers. Topics are created at the start, and again after a
deletion, if that is allowed; otherwise `ready` names each missing topic."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from itertools import chain
from typing import Literal

from sparklag_kafka.access import connection_problem, explain_error
from sparklag_kafka.brokers.logs import read_partitions
from sparklag_kafka.clients.producer import AcknowledgedProducer, Partitioner
from sparklag_kafka.clients.topic_setup import create_missing, find_problems
from sparklag_kafka.errors import (
    KAFKA_FAILURES,
    KafkaUnavailable,
    MessageTooLarge,
    RequestNotTaken,
    TopicUnavailable,
    error_text,
)
from sparklag_schemas import LagEvent, PartitionRecord, ResolvedSettings, SparklagError
from sparklag_schemas.codec import MessageWriter
from sparklag_schemas.messages.headers import Headers
from sparklag_schemas.messages.topics import own_topics
from sparklag_schemas.runtime.logs import log_fields

_log = logging.getLogger(__name__)
_RETRY_S = 2.0
Outcome = Literal["acknowledged", "too large", "failed"]


class OwnTopics:
    """Creates missing topics, if `create_topics` allows it, and warns of settings that lose
    data."""

    def __init__(self, settings: ResolvedSettings) -> None:
        self._settings = settings
        self._topics = own_topics(settings)
        self.ready: str | None = f"Kafka at {settings.bootstrap_servers} has not answered yet"
        """None once the topics exist, or why they do not."""

    async def until_ready(self) -> None:
        """Return once all topics exist; wait for Kafka."""
        while self.ready is not None:
            try:
                settings = self._settings
                if problem := await connection_problem(settings.access):
                    raise KafkaUnavailable(f"Kafka at {settings.bootstrap_servers}: {problem}")
                await self._create()
                await self._warn_of_problems()
            except (*KAFKA_FAILURES, SparklagError) as error:
                reason = str(error)
                if not isinstance(error, SparklagError):
                    cause = await explain_error(error, self._settings.access)
                    reason = f"Kafka at {self._settings.bootstrap_servers}: {cause}"
                self._not_ready(reason)
                await asyncio.sleep(_RETRY_S)
            else:
                self.ready = None

    async def recreate(self, failed: asyncio.Event) -> None:
        """Create deleted topics again, until cancelled; check at once when `failed` is set.

        While a topic is missing, `ready` gives the reason.
        """
        interval_s = min(self._settings.metadata_interval_s, self._settings.heartbeat_s)
        while True:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(failed.wait(), interval_s)
            failed.clear()
            try:
                await self._create()
            except TopicUnavailable as error:
                self._not_ready(str(error))
            except (*KAFKA_FAILURES, SparklagError) as error:
                _log.debug("topics were not checked: %s", error)
            else:
                self.ready = None
            await asyncio.sleep(min(_RETRY_S, interval_s))

    def _not_ready(self, reason: str) -> None:
        if reason != self.ready:
            self.ready = reason
            _log.warning("%s; retrying", reason)

    async def _create(self) -> None:
        """Raises TopicUnavailable for a missing topic that cannot be created."""
        settings, topics = self._settings, self._topics
        if settings.create_topics:
            for name in await create_missing(settings.access, topics):
                _log.info("created topic %s", name)
            return
        names = [topic.name for topic in topics]
        existing = await read_partitions(names, settings.access)
        if missing := [name for name in names if name not in existing]:
            raise TopicUnavailable(
                f"there is no topic {' and no topic '.join(missing)}, or no right to see it:"
                " create it with `sparklag topics create`, since create_topics = false"
            )

    async def _warn_of_problems(self) -> None:
        try:
            described = await find_problems(self._settings.access, self._topics)
        except RequestNotTaken as error:
            _log.warning("%s", error_text(error))
            return
        for problem in chain.from_iterable(described.values()):
            _log.warning("%s", problem)


class TopicWriter:
    """Writes records to `topic`, encoded by `form`."""

    def __init__(self, settings: ResolvedSettings, topic: str, form: MessageWriter) -> None:
        self._settings = settings
        self._topic = topic
        self.form = form
        self.producer = AcknowledgedProducer(settings)
        self.failing: str | None = None
        """Why the newest record was not acknowledged. None: it was acknowledged."""
        self._too_large: set[bytes] = set()
        self.failed = asyncio.Event()
        """Set by each failure: a topic may be missing."""
        self.waiting: str | None = None
        """Why nothing can be written yet. None: ready, or not checked."""

    async def stay_ready(self) -> None:
        """Prepare the encoding until cancelled, so that each write needs only Kafka."""
        while True:
            try:
                await self.form.prepare()
            except SparklagError as error:
                if str(error) != self.waiting:
                    self.waiting = str(error)
                    _log.warning("cannot publish to topic %s yet, retrying: %s", self._topic, error)
                await asyncio.sleep(_RETRY_S)
            else:
                self.waiting = None
                await asyncio.get_running_loop().create_future()

    async def write(
        self,
        key: bytes,
        message: LagEvent | PartitionRecord | None,
        headers: Headers,
        partitioner: Partitioner | None = None,
    ) -> Outcome:
        """Write a record; None writes a tombstone. After `failed` the caller writes it again."""
        try:
            value = None if message is None else await self.form.encode(message)
            await self.producer.send(
                self._topic,
                key=key,
                value=value,
                headers=headers,
                partitioner=partitioner,
                query=None if message is None else message.query or message.query_id,
            )
        except MessageTooLarge as error:
            if key not in self._too_large:
                self._too_large.add(key)
                _log.error(
                    "%s cannot be published: %s",
                    *(key.decode(), error),
                    extra=None if message is None else log_fields(message, str(error)),
                )
            return "too large"
        except (*KAFKA_FAILURES, SparklagError) as error:
            self.failed.set()
            await self._complain(error)
            return "failed"
        if self.failing is not None:
            self.failing = None
            _log.warning("publishing to topic %s again", self._topic)
        self._too_large.discard(key)
        return "acknowledged"

    def forget(self, key: bytes) -> None:
        """Log the next record of that key that is too large."""
        self._too_large.discard(key)

    async def _complain(self, error: BaseException) -> None:
        if self.failing is not None:
            return
        self.failing = f"cannot publish to topic {self._topic}"
        reason = f"{self.failing}: {await explain_error(error, self._settings.access)}"
        _log.warning("%s; trying again", reason)
        if self.failing is not None:
            # Nothing was acknowledged meanwhile.
            self.failing = reason
