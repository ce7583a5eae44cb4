"""The configured Kafka clusters, and which of them a query reads from. Pure."""

from __future__ import annotations

from sparklag_schemas import Settings


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


def checkpoint_patterns(settings: Settings) -> list[tuple[str, str]]:
    """The locations to watch, or patterns of them, each with the alias of its queries' cluster."""
    patterns = [(pattern, settings.cluster) for pattern in settings.checkpoints.locations]
    for alias, cluster in settings.clusters.items():
        patterns += [(pattern, alias) for pattern in cluster.checkpoints]
    return patterns


def burrow_clusters(settings: Settings) -> frozenset[str]:
    """The aliases of those whose consumer groups are judged by Burrow's own rules."""
    groups = {settings.cluster: settings.groups}
    groups |= {alias: cluster.groups for alias, cluster in settings.clusters.items()}
    return frozenset(alias for alias, one in groups.items() if one.evaluator == "burrow")


def _addresses(bootstrap_servers: str) -> list[str]:
    # Kafka's clients take `SASL_SSL://host:port` too.
    listed = (address.rpartition("://")[2].strip() for address in bootstrap_servers.split(","))
    return [address.lower() for address in listed if address]
