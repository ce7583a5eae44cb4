"""The configured Kafka clusters, and which of them a query reads from. Pure."""

from __future__ import annotations

from sparklag_schemas.settings import KafkaSettings, Settings


class ClusterNames:
    """Cluster aliases by the addresses of their brokers.

    An address may be written in many ways: where none of a source's is known, the alias its driver
    was given (`cluster`) decides.
    """

    def __init__(self, settings: Settings, bootstrap_servers: str) -> None:
        self._aliases = {settings.cluster, *settings.clusters}
        self._by_address: dict[str, str] = {}
        for alias, cluster in settings.clusters.items():
            for listed in (cluster.bootstrap_servers, cluster.addresses):
                self._by_address.update(dict.fromkeys(_addresses(listed), alias))
        self._by_address.update(dict.fromkeys(_addresses(bootstrap_servers), settings.cluster))

    def alias_of(self, bootstrap_servers: str | None, told: str) -> str | None:
        """The alias of the cluster behind `bootstrap_servers`, whose driver says it is `told`.

        None where neither is configured: it cannot be measured.
        """
        for address in _addresses(bootstrap_servers or ""):
            if address in self._by_address:
                return self._by_address[address]
        return told if told in self._aliases else None


def kafka_of(settings: Settings, bootstrap_servers: str) -> KafkaSettings:
    """How to connect to the cluster behind `bootstrap_servers`: the settings may name several."""
    names = ClusterNames(settings, settings.bootstrap_servers or "")
    alias = names.alias_of(bootstrap_servers, settings.cluster)
    other = settings.clusters.get(alias) if alias is not None else None
    return other.kafka if other is not None else settings.kafka


def _addresses(bootstrap_servers: str) -> list[str]:
    # Kafka's clients take `SASL_SSL://host:port` too.
    listed = (address.rpartition("://")[2].strip() for address in bootstrap_servers.split(","))
    return [address.lower() for address in listed if address]
