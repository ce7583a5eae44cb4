"""The brokers of one cluster, wherever they are by now, and a connection to each."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiokafka.conn import collect_hosts

from sparklag_kafka.brokers.connection import BrokerConnection
from sparklag_kafka.brokers.first_answer import first_answer
from sparklag_kafka.clients.connection import TrustedBrokers, client_options
from sparklag_kafka.protocol.metadata import Address, MetadataRequest
from sparklag_schemas import ClusterAccess

_CLOSE_S: Final = 5.0


class BrokerPool:
    """Known by their ids once `learn` has been called. Raises SettingsError for unusable ones."""

    def __init__(self, access: ClusterAccess) -> None:
        self._options: dict[str, Any] = client_options(access)
        del self._options["bootstrap_servers"]
        self._trusted = TrustedBrokers(access)
        self.timeout_s = access.kafka.request_timeout_s
        """Deadline of one answer."""
        self._seeds: list[Address] = [
            (host, port) for host, port, _ in collect_hosts(access.bootstrap_servers)
        ]
        self._addresses: dict[int, Address] = {}
        self._links: dict[Address, BrokerConnection] = {}
        self._answered_last: Address | None = None

    @property
    def nodes(self) -> list[int]:
        """The ids of the brokers there are."""
        return sorted(self._addresses)

    def link(self, node: int) -> BrokerConnection | None:
        """The connection to a broker. None: there is none of that id."""
        address = self._addresses.get(node)
        return self._link_to(address) if address is not None else None

    def links(self) -> list[BrokerConnection]:
        """To all that may answer, the one that did last before the others."""
        known = [self._answered_last] if self._answered_last else []
        addresses = dict.fromkeys((*known, *self._addresses.values(), *self._seeds))
        return [self._link_to(address) for address in addresses]

    async def learn(self) -> bool:
        """Ask which brokers there are, and where; whether one answered."""
        found = await first_answer(self.links(), MetadataRequest([]))
        if found is None:
            return False
        brokers, _ = found.answer.read()
        self._answered_last = found.link.address
        self._addresses = brokers
        wanted = {*brokers.values(), *self._seeds}
        left = [self._links.pop(address) for address in list(self._links) if address not in wanted]
        await asyncio.gather(*(link.aclose() for link in left))
        return True

    async def aclose(self) -> None:
        """Close the connections; bounded in time."""
        closing = [asyncio.ensure_future(link.aclose()) for link in self._links.values()]
        if closing:
            await asyncio.wait(closing, timeout=_CLOSE_S)

    def _link_to(self, address: Address) -> BrokerConnection:
        if address not in self._links:
            self._links[address] = BrokerConnection(
                *address, self._options, self._trusted, self.timeout_s
            )
        return self._links[address]
