"""The Kafka clusters of the settings, and the patterns that choose topics and groups. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparklag_schemas.settings import ClusterAccess, Settings
from sparklag_schemas.settings.addresses import address_keys


class NamePatterns:
    """Regular expressions of whole names or ids. Everything is included if `include` is empty;
    `exclude` prevails."""

    def __init__(self, include: Iterable[str], exclude: Iterable[str]) -> None:
        self._include = [re.compile(pattern) for pattern in include]
        self._exclude = [re.compile(pattern) for pattern in exclude]

    def select(self, *names: str | None) -> bool:
        """True: an object with these names is selected."""
        present = [name for name in names if name is not None]
        is_included, is_excluded = (
            any(pattern.fullmatch(name) for pattern in patterns for name in present)
            for patterns in (self._include, self._exclude)
        )
        return (is_included or not self._include) and not is_excluded


class ClusterNames:
    """Cluster aliases by the addresses of their brokers."""

    def __init__(self, settings: Settings) -> None:
        home = ClusterAccess(settings.bootstrap_servers or "", settings.kafka)
        self._home = settings.cluster
        self._access = {alias: cluster.access for alias, cluster in settings.clusters.items()}
        self._access[settings.cluster] = home
        others = {alias: cluster.addresses for alias, cluster in settings.clusters.items()}
        others[settings.cluster] = settings.addresses
        self._by_address = {
            address: alias
            for alias, listed in others.items()
            for address in address_keys(f"{self._access[alias].bootstrap_servers},{listed}")
        }

    def alias_of(self, bootstrap_servers: str | None, reported: str) -> str | None:
        """The alias of the cluster behind `bootstrap_servers`. Where no setting has one of the
        addresses, it is `reported`, the driver's alias.

        None: neither is configured, or the addresses belong to several clusters.
        """
        aliases = self._aliases_of(bootstrap_servers) or {reported} & self._access.keys()
        return aliases.pop() if len(aliases) == 1 else None

    def access_to(self, bootstrap_servers: str | None) -> ClusterAccess | None:
        """Access to the configured cluster behind `bootstrap_servers`; None is the home cluster.

        None where no setting names these brokers. A driver whose settings name no brokers at all
        uses those of its query, if there is no password to give away.
        """
        home = self._access[self._home]
        if bootstrap_servers is not None and not self._by_address and not home.kafka.has_secret:
            return ClusterAccess(bootstrap_servers, home.kafka)
        aliases = {self._home} if bootstrap_servers is None else self._aliases_of(bootstrap_servers)
        access = self._access[aliases.pop()] if len(aliases) == 1 else None
        return access if access is not None and access.bootstrap_servers else None

    def _aliases_of(self, bootstrap_servers: str | None) -> set[str]:
        named = (self._by_address.get(address) for address in address_keys(bootstrap_servers or ""))
        return {alias for alias in named if alias is not None}


def access_by_address(settings: Settings, bootstrap_servers: str) -> ClusterAccess:
    """Access to these brokers, with the credentials of their cluster in the settings."""
    alias = ClusterNames(settings).alias_of(bootstrap_servers, settings.cluster)
    return ClusterAccess(bootstrap_servers, settings.clusters.get(alias or "", settings).kafka)
