"""Writes records of one topic. A failure is counted and logged, the first of a series with its
cause."""

from __future__ import annotations

import asyncio
import logging
from typing import Literal

from sparklag_kafka.clients.client_options import explain_error
from sparklag_kafka.clients.producer import AcknowledgedProducer, Partitioner
from sparklag_kafka.errors import KAFKA_FAILURES, MessageTooLarge
from sparklag_schemas import LagEvent, PartitionRecord, ResolvedSettings, SparklagError
from sparklag_schemas.formats import MessageWriter
from sparklag_schemas.headers import Headers
from sparklag_schemas.log_fields import log_fields

_log = logging.getLogger(__name__)
_RETRY_S = 2.0

Outcome = Literal["acknowledged", "too large", "failed"]


class TopicWriter:
    """To `topic`, in the form of `form`."""

    def __init__(self, settings: ResolvedSettings, topic: str, form: MessageWriter) -> None:
        self._settings = settings
        self._topic = topic
        self._form = form
        self._producer = AcknowledgedProducer(settings)
        self.failing: str | None = None
        """Why the newest record was not acknowledged. None: it was."""
        self._too_large: set[bytes] = set()
        self.failed = asyncio.Event()
        """Set by each failure: something may be mended."""
        self.waiting: str | None = None
        """Why nothing can be written yet. None: ready, or not checked."""

    @property
    def content_type(self) -> str:
        """Of the values."""
        return self._form.content_type

    async def stay_ready(self) -> None:
        """See to it that values can be written without anybody but Kafka. Until cancelled."""
        while True:
            try:
                await self._form.prepare()
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
        """None is a tombstone. `failed`: it is to be written again."""
        try:
            value = None if message is None else await self._form.encode(message)
            await self._producer.send(
                self._topic,
                key=key,
                value=value,
                headers=headers,
                partitioner=partitioner,
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

    async def aclose(self) -> None:
        """Disconnect."""
        await self._producer.aclose()

    async def _complain(self, error: BaseException) -> None:
        if self.failing is not None:
            return
        self.failing = f"cannot publish to topic {self._topic}"
        reason = f"{self.failing}: {await explain_error(error, self._settings.access)}"
        _log.warning("%s; trying again", reason)
        if self.failing is not None:
            # Nothing was acknowledged meanwhile.
            self.failing = reason
