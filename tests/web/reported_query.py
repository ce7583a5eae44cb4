"""A query whose driver is the test: it reports to `processed-offsets` what the test passes."""

from __future__ import annotations

import uuid
from typing import Any

from sparklag_schemas import Cause, encode
from sparklag_schemas.messages.topics import key_of
from sparklag_schemas.timestamps import epoch_ms
from tests.messages import seen
from tests.second_client import SecondClient


class ReportedQuery:
    def __init__(
        self, client: SecondClient, offsets_topic: str, topic: str, name: str | None
    ) -> None:
        self.id = str(uuid.uuid4())
        self.name = name or self.id
        self._client = client
        self._offsets_topic = offsets_topic
        self._topic = topic
        self._fields = {"query_id": self.id, "run_id": str(uuid.uuid4()), "query": name}
        self._batch_id = -1
        self._processed = dict.fromkeys(range(client.partitions(topic)), 0)

    def complete_batch(self, *processed: int, **fields: Any) -> None:
        """Up to these offsets, in the order of the partitions. `fields`: more of its report."""
        self._batch_id += 1
        self._processed = dict(enumerate(processed))
        self._report("progress", batch_id=self._batch_id, processed_at=epoch_ms(), **fields)

    def refresh(self) -> None:
        self._report("refresh", batch=None, activity="running")

    def stop(self, exception: str | None = None) -> None:
        self._report("terminated", batch=None, exception=exception)

    def _report(self, cause: Cause, **fields: Any) -> None:
        report = seen(self._topic, self._processed, **self._fields, cause=cause, **fields)
        self._client.produce(self._offsets_topic, [encode(report)], key=key_of(self.id))
