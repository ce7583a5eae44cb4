"""The configured Kafka clusters, and which of them a query reads from. Pure.

Addresses that come with a message, a kept position or a plan only choose among those of the
settings: nothing connects to them, and nothing logs in there.
"""

from __future__ import annotations

from sparklag_schemas.settings import ClusterAccess, Settings


class ClusterNames:
    """Cluster aliases by the addresses of their brokers."""

    def __init__(self, settings: Settings) -> None:
        home = settings.bootstrap_servers or ""
        self._home = settings.cluster
        self._access = {alias: cluster.access for alias, cluster in settings.clusters.items()}
        self._access[settings.cluster] = ClusterAccess(home, settings.kafka)
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
            return told if told in self._access else None
        return found.pop() if len(found) == 1 else None

    def access_to(self, bootstrap_servers: str | None) -> ClusterAccess | None:
        """To the cluster of the settings behind `bootstrap_servers`; None, to the home cluster.

        None where no setting names them. But where no setting names any broker, and there is no
        password to give away, those: a driver that was told nothing asks its query's own.
        """
        if bootstrap_servers is None:
            alias: str | None = self._home
        else:
            found = self._aliases_of(bootstrap_servers)
            if not self._by_address and not self._access[self._home].kafka.has_secret:
                return ClusterAccess(bootstrap_servers, self._access[self._home].kafka)
            alias = found.pop() if len(found) == 1 else None
        access = self._access[alias] if alias is not None else None
        return access if access is not None and access.bootstrap_servers else None

    def _aliases_of(self, bootstrap_servers: str | None) -> set[str]:
        named = (self._by_address.get(address) for address in _addresses(bootstrap_servers or ""))
        return {alias for alias in named if alias is not None}


def access_by_address(settings: Settings, bootstrap_servers: str) -> ClusterAccess:
    """To brokers that the operator names: the settings may name several clusters."""
    alias = ClusterNames(settings).alias_of(bootstrap_servers, settings.cluster)
    other = settings.clusters.get(alias) if alias is not None else None
    return ClusterAccess(bootstrap_servers, other.kafka if other is not None else settings.kafka)


def _addresses(bootstrap_servers: str) -> list[str]:
    # Kafka's clients take `SASL_SSL://host:port` too.
    listed = (address.rpartition("://")[2].strip() for address in bootstrap_servers.split(","))
    return [address.lower() for address in listed if address]
