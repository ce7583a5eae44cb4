"""What is configured of clusters besides how to reach them. Pure."""

from __future__ import annotations

from sparklag_schemas import Settings


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
