"""The configured Kafka clusters, and what is asked for of each. Pure."""

from __future__ import annotations

from sparklag_schemas import Settings
from sparklag_schemas.settings import ClusterSettings


def every_cluster(
    settings: Settings, bootstrap_servers: str | None = None
) -> dict[str, ClusterSettings]:
    """By alias, the one that carries sparklag's topics first; `bootstrap_servers` are its, where
    the settings may not say them."""
    home = ClusterSettings(
        bootstrap_servers=bootstrap_servers or settings.bootstrap_servers or "",
        kafka=settings.kafka,
        checkpoints=settings.checkpoints.locations,
        groups=settings.groups,
    )
    return {settings.cluster: home, **settings.clusters}


def checkpoint_patterns(settings: Settings) -> list[tuple[str, str]]:
    """The locations to watch, or patterns of them, each with the alias of its queries' cluster."""
    return [
        (pattern, alias)
        for alias, cluster in every_cluster(settings).items()
        for pattern in cluster.checkpoints
    ]


def burrow_clusters(settings: Settings) -> frozenset[str]:
    """The aliases of those whose consumer groups are judged by Burrow's own rules."""
    clusters = every_cluster(settings).items()
    return frozenset(alias for alias, one in clusters if one.groups.evaluator == "burrow")
