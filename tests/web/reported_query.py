"""A query whose driver is the test: what it reports goes to `processed-offsets`, as from a driver."""

from __future__ import annotations

import uuid
from typing import Any

from sparklag_schemas import Cause, Observation, encode
from sparklag_schemas.timestamps import epoch_ms
from sparklag_schemas.topics import key_of
from tests.messages import observation, position
from tests.second_client import SecondClient


class ReportedQuery:
    """Reads partition 0 of `topic`, from its beginning."""

    def __init__(self, client: SecondClient, offsets_topic: str, topic: str, name: str) -> None:
        self.id = str(uuid.uuid4())
        self.name = name
        self._client = client
        self._offsets_topic = offsets_topic
        self._topic = topic
        self._run_id = str(uuid.uuid4())
        self._batch_id = -1
        self._processed = 0

    def start(self) -> None:
        """Its driver reports it."""
        self._report("started")

    def complete_batch(self, processed: int) -> None:
        """Up to that offset."""
        self._batch_id += 1
        self._processed = processed
        self._report("progress", batch_id=self._batch_id, processed_at=epoch_ms())

    def refresh(self) -> None:
        """It still runs, and has completed nothing."""
        self._report("refresh", activity="running")

    def stop(self, exception: str | None = None) -> None:
        """It ends; where it fails, with that."""
        self._report("terminated", exception=exception)

    def _report(self, cause: Cause, **fields: Any) -> None:
        self._client.produce(
            self._offsets_topic,
            [encode(self._observation(cause, **fields))],
            key=key_of(self.id),
        )

    def _observation(self, cause: Cause, **fields: Any) -> Observation:
        return observation(
            **{
                "observation_id": str(uuid.uuid4()),
                "query_id": self.id,
                "run_id": self._run_id,
                "query": self.name,
                "cause": cause,
                "observed_at": epoch_ms(),
                "batch_id": None,
                "batch": None,
                "checkpoint_location": f"file:/checkpoints/{self.id}",
                "sources": [position({self._topic: {0: self._processed}})],
                **fields,
            }
        )
