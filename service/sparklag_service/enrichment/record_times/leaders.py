"""Connections to the leaders of one cluster, to read record times: made when they are needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from aiokafka.structs import TopicPartition

from sparklag_kafka.brokers.connection import BrokerConnection
from sparklag_kafka.brokers.pool import BrokerPool
from sparklag_kafka.protocol.metadata import Address
from sparklag_service.enrichment.cluster_offsets import ClusterOffsets
from sparklag_service.enrichment.record_times.leader_reader import LeaderReader

MakeReader = Callable[[BrokerConnection], LeaderReader]


class Cluster(Protocol):
    """A cluster, as far as it is needed here."""

    @property
    def offsets(self) -> ClusterOffsets: ...

    def leader(self, topic: str, partition: int) -> Address | None:
        """Where the partition's leader is; None where it has none."""

    @property
    def pool(self) -> BrokerPool: ...


class Leaders:
    """A reader for each broker that leads something of interest."""

    def __init__(self, cluster: Cluster, make_reader: MakeReader) -> None:
        self._cluster = cluster
        self._make_reader = make_reader
        self._readers: dict[Address, LeaderReader] = {}
        self._used: set[Address] = set()

    def of(self, partition: TopicPartition) -> LeaderReader | None:
        """The reader of its leader; None where it has none."""
        address = self._cluster.leader(*partition)
        if address is None:
            return None
        self._used.add(address)
        reader = self._readers.get(address)
        if reader is None:
            reader = self._readers[address] = self._make_reader(
                self._cluster.pool.dedicated(address)
            )
        return reader

    async def close_idle(self) -> None:
        """Close those that nobody asked for since this was called last."""
        used, self._used = self._used, set()
        readers = self._readers.items()
        idle = [place for place, one in readers if place not in used and not one.is_busy]
        await asyncio.gather(*(self._readers.pop(place).aclose() for place in idle))

    async def aclose(self) -> None:
        """Close all; bounded in time."""
        readers, self._readers = list(self._readers.values()), {}
        await asyncio.gather(*(reader.aclose() for reader in readers))
