"""No number that an observation may hold keeps any store from going on, now or after a restart."""

from __future__ import annotations

import asyncio

import msgspec

from sparklag_offsets.store.batch_record import OffsetStore
from sparklag_offsets.store.writer import StoreWriter
from sparklag_schemas import Observation, Settings
from tests.fuzz.extremes import extremes_of, taken
from tests.offsets.store.batches import new_query, output
from tests.waiting import DEADLINE_S


async def test_a_store_takes_them_or_refuses_each_by_itself(store: OffsetStore) -> None:
    # Each of a query of its own.
    extremes = [
        msgspec.structs.replace(result, query_id=new_query())
        for every in extremes_of(Observation).values()
        for written in every
        if (result := taken(Observation, written)) is not None
    ]
    assert len(extremes) > 50
    ordinary = output(0, query_id=new_query())
    for _ in range(2):
        # The second is one that is started anew, and goes on from what is in the store.
        writer = StoreWriter(store, Settings())
        await asyncio.wait_for(writer.write([*extremes, ordinary]), DEADLINE_S)
        assert writer.counts.failures == 0
    assert await store.as_of(ordinary.query_id, None) is not None
    for one in extremes:
        # Also what it has taken can be read.
        await store.as_of(one.query_id, None)
    assert len(await store.queries()) > 1
