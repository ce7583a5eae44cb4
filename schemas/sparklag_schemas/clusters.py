"""The configured Kafka clusters, and which of them a query reads from. Pure.

Addresses that come with a message, a kept position or a plan only choose among those of the
settings: nothing connects to them, and nothing logs in there.
"""

from __future__ import annotations

from typing import NamedTuple

from sparklag_schemas.settings import KafkaSettings, Settings


class Brokers(NamedTuple):
    """Where to connect, and how."""

    bootstrap_servers: str
    kafka: KafkaSettings


class ClusterNames:
    """Cluster aliases by the addresses of their brokers."""

    def __init__(self, settings: Settings, bootstrap_servers: str | None) -> None:
        """`bootstrap_servers`: of the home cluster, where the settings may not say them."""
        home = bootstrap_servers or settings.bootstrap_servers or ""
        self._home = settings.cluster
        self._brokers = {
            alias: Brokers(cluster.bootstrap_servers, cluster.kafka)
            for alias, cluster in settings.clusters.items()
        }
        self._brokers[settings.cluster] = Brokers(home, settings.kafka)
        self._by_address: dict[str, str] = {}
        for alias, cluster in settings.clusters.items():
            for listed in (cluster.bootstrap_servers, cluster.addresses):
                self._by_address.update(dict.fromkeys(_addresses(listed), alias))
        for listed in (home, settings.addresses):
            self._by_address.update(dict.fromkeys(_addresses(listed), settings.cluster))

    def alias_of(self, bootstrap_servers: str | None, told: str) -> str | None:
        """The alias of the cluster behind `bootstrap_servers`, whose driver says it is `told`.

        An address may be written in many ways: where none of these is known, `told` decides. None
        where neither is configured, or they are of several clusters: it cannot be measured.
        """
        found = self._aliases_of(bootstrap_servers)
        if not found:
            return told if told in self._brokers else None
        return found.pop() if len(found) == 1 else None

    def brokers_of(self, bootstrap_servers: str | None) -> Brokers | None:
        """Those of the settings behind `bootstrap_servers`; None, the home cluster's.

        None where no setting names them. But where no setting names any broker, and there is no
        password to give away, those: a driver that was told nothing asks its query's own.
        """
        if bootstrap_servers is None:
            alias: str | None = self._home
        else:
            found = self._aliases_of(bootstrap_servers)
            if not self._by_address and not self._brokers[self._home].kafka.has_secret:
                return Brokers(bootstrap_servers, self._brokers[self._home].kafka)
            alias = found.pop() if len(found) == 1 else None
        brokers = self._brokers[alias] if alias is not None else None
        return brokers if brokers is not None and brokers.bootstrap_servers else None

    def _aliases_of(self, bootstrap_servers: str | None) -> set[str]:
        named = (self._by_address.get(address) for address in _addresses(bootstrap_servers or ""))
        return {alias for alias in named if alias is not None}


def kafka_of(settings: Settings, bootstrap_servers: str) -> KafkaSettings:
    """How to connect to brokers that the operator names: the settings may name several clusters."""
    names = ClusterNames(settings, None)
    alias = names.alias_of(bootstrap_servers, settings.cluster)
    other = settings.clusters.get(alias) if alias is not None else None
    return other.kafka if other is not None else settings.kafka


def _addresses(bootstrap_servers: str) -> list[str]:
    # Kafka's clients take `SASL_SSL://host:port` too.
    listed = (address.rpartition("://")[2].strip() for address in bootstrap_servers.split(","))
    return [address.lower() for address in listed if address]
