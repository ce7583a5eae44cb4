"""A new kind of source is one file: this one, through `register_source` alone."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from sparklag_schemas import Observation, Settings, SourcePosition
from sparklag_schemas.messages.enumerations import ORIGINS, OriginTraits, mark
from sparklag_schemas.presentation import sentences
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.intakes import Delivery, SourceContext, nothing_to_do
from sparklag_service.intakes import sources as sources_module
from sparklag_service.intakes.sources import SourceKind, register_source
from tests.second_client import SecondClient
from tests.service.conftest import running
from tests.waiting import holds

pytestmark = pytest.mark.kafka

ORIGIN = "ledger"
_INTERVAL_S = 0.2


class LedgerWatcher:
    """Reads positions from a JSON file: query id to topic, partition, next offset."""

    name = "ledger"
    failing: Mapping[str, str] = {}

    def __init__(self, ledger: Path, context: SourceContext) -> None:
        self._ledger = ledger
        self._context = context
        self._moved: dict[str, tuple[object, int]] = {}
        """The last position and the time of its first read, by query id."""

    async def run(self) -> None:
        while True:
            for query_id, processed in json.loads(self._ledger.read_text()).items():
                if self._context.watches(query_id):
                    observed = self._observation(query_id, processed)
                    self._context.queue.put_nowait(Delivery(observed, nothing_to_do))
            await asyncio.sleep(_INTERVAL_S)

    def _observation(self, query_id: str, processed: dict[str, dict[str, int]]) -> Observation:
        offsets = {t: {int(p): offset for p, offset in ps.items()} for t, ps in processed.items()}
        if self._moved.get(query_id, (None, 0))[0] != offsets:
            self._moved[query_id] = (offsets, epoch_ms())
        return Observation(
            observation_id=str(uuid.uuid4()),
            query_id=query_id,
            run_id=None,
            query="booked",
            cause="booked",
            origin=ORIGIN,
            observed_at=epoch_ms(),
            processed_at=self._moved[query_id][1],
            sources=[SourcePosition(source=0, processed=offsets)],
        )


def write(ledger: Path, topic: str, offsets: dict[str, int]) -> None:
    ledger.write_text(json.dumps({i: {topic: {"0": offset}} for i, offset in offsets.items()}))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Path]:
    """The file that the watcher reads; the kind is registered while the test runs."""
    file = tmp_path / "ledger.json"
    file.write_text("{}")
    register_source(
        SourceKind(
            ORIGIN,
            lambda context: [LedgerWatcher(file, context)],
            lambda settings: _INTERVAL_S,
            OriginTraits("a ledger", position_store="ledger"),
        )
    )
    yield file
    del sources_module._SOURCES[ORIGIN], ORIGINS[ORIGIN]


async def test_its_queries_are_measured_published_and_shown_like_any_other(
    ledger: Path, service_settings: Settings, second_client: SecondClient, topic: str
) -> None:
    second_client.produce(topic, [b"x"] * 9)
    query_id = str(uuid.uuid4())

    async with running(service_settings, second_client) as service:
        write(ledger, topic, {query_id: 4})
        event = await service.shows(query_id, lambda e: e.total_lag == 5, "its lag")
        assert (event.origin, event.cause, event.query) == (ORIGIN, "booked", "booked")
        assert event.status == "OK"
        assert "a ledger" in dict(sentences.lines(event, epoch_ms()))["observed"]
        assert mark(event.status) == "ok"
        write(ledger, topic, {query_id: 8})
        await service.shows(query_id, lambda e: e.total_lag == 1, "its lag after it moved")
        await holds(
            lambda: any(e is not None and e.total_lag == 1 for e in service.published(query_id)),
            "the event is on the topic",
        )
