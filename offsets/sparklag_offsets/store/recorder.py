"""Records what is observed: the one place that writes to the offset store."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from sparklag_offsets.store.batch_record import BatchRecord
from sparklag_offsets.store.chain import Chain, TopicIdOf, link
from sparklag_offsets.store.offset_store import OffsetStore
from sparklag_schemas import Observation

_log = logging.getLogger("sparklag")
_REMEMBERED: Final = 10_000
"""Queries."""


class Recorder:
    """For one event loop, one call at a time."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self._chains: OrderedDict[str, Chain] = OrderedDict()
        self._complained: OrderedDict[str, None] = OrderedDict()
        """Past runs that were told of."""

    async def record(self, observations: Sequence[Observation], topic_id_of: TopicIdOf) -> int:
        """Write what they add; how many records that is. Repeating them adds nothing. After an
        error all of it is to be repeated. Raises StoreError."""
        chains = await self._chains_of({observation.query_id for observation in observations})
        records: list[BatchRecord] = []
        for observation in observations:
            chain = chains[observation.query_id]
            added = link(observation, chain, topic_id_of)
            if added.past_run_id is not None:
                self._complain(observation, added.past_run_id, chain)
            if added.records:
                chains[observation.query_id] = chain.after(added.records)
                records += added.records
        if records:
            await self._store.keep(records)
        self._remember(chains)
        return len(records)

    async def _chains_of(self, query_ids: set[str]) -> dict[str, Chain]:
        unknown = query_ids - self._chains.keys()
        newest = await self._store.newest(sorted(unknown)) if unknown else {}
        return {
            query_id: self._chains.get(query_id) or Chain.ending_with(newest.get(query_id))
            for query_id in query_ids
        }

    def _remember(self, chains: dict[str, Chain]) -> None:
        for query_id, chain in chains.items():
            self._chains[query_id] = chain
            self._chains.move_to_end(query_id)
        while len(self._chains) > _REMEMBERED:
            self._chains.popitem(last=False)

    def _complain(self, observation: Observation, run_id: str, chain: Chain) -> None:
        if run_id in self._complained:
            return
        self._complained[run_id] = None
        if len(self._complained) > _REMEMBERED:
            self._complained.popitem(last=False)
        _log.warning(
            "query %s is run by two drivers: run %s goes on beside run %s, which began later; what"
            " the earlier one does is not recorded",
            observation.query or observation.query_id,
            run_id,
            chain.run_id,
        )
