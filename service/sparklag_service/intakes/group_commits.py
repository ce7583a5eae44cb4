"""The metadata of the mirror's commits, and the failures of a cluster's groups."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from sparklag_kafka.errors import (
    COORDINATOR_LOADING,
    COORDINATOR_NOT_AVAILABLE,
    GROUP_FORBIDDEN,
    NOT_COORDINATOR,
    error_name,
)
from sparklag_kafka.protocol.groups import CommittedTopic
from sparklag_schemas.text.printable import first_few

_PREFIX: Final = "sparklag"
_MAX_DIGITS: Final = 19
_CACHED: Final = 256
"""The partitions of a commit have the same metadata, and are decoded one after the other."""


class CommitMetadata(NamedTuple):
    """The query that processed the offset, and when; ordered by time."""

    observed_at_ms: int
    query_id: str

    @property
    def text(self) -> str:
        """The text of the metadata. Short, because a broker stores it with each partition."""
        return f"{_PREFIX} {self.query_id} {self.observed_at_ms}"


@lru_cache(_CACHED)
def parse_metadata(text: str) -> CommitMetadata | None:
    """Parse an offset's metadata. None: the mirror did not write it."""
    prefix, _, rest = text.partition(" ")
    query_id, _, observed_at = rest.rpartition(" ")
    is_number = observed_at.isascii() and observed_at.isdigit() and len(observed_at) <= _MAX_DIGITS
    if prefix != _PREFIX or not query_id or not is_number:
        return None
    return CommitMetadata(int(observed_at), query_id)


def is_mirrored(topics: Mapping[str, CommittedTopic]) -> bool:
    """Return whether a mirror, of any service, has committed to a group."""
    return any(
        parse_metadata(text) is not None
        for topic in topics.values()
        for text in topic.metadata.values()
    )


_log = logging.getLogger(__name__)
_REASONS: Final[Mapping[int, str]] = {
    COORDINATOR_LOADING: "its coordinator is still loading offsets",
    COORDINATOR_NOT_AVAILABLE: "it has no coordinator now",
    NOT_COORDINATOR: "its coordinator has moved",
    GROUP_FORBIDDEN: "no right to describe it",
}


def group_error_text(code: int) -> str:
    """Why a broker refuses a request about a group."""
    return _REASONS.get(code) or f"Kafka answers {error_name(code)}"


class ClusterFailures:
    """Reasons by what fails: the cluster, a broker, a group. Each reason is one line with the
    cluster.

    `role`: the part that reads or commits; `recovered`: the verb at the end of its log line.
    """

    def __init__(
        self, alias: str, role: str = "groups", recovered: str = "can be read again"
    ) -> None:
        self.reasons: dict[str, str] = {}
        self.cluster = f"{role} of {alias}"
        self._prefix = f"Kafka cluster {alias}"
        self._recovered = recovered

    def broker(self, node_id: int) -> str:
        return f"{self.cluster}: broker {node_id}"

    def descriptions(self, node_id: int) -> str:
        """The key of a broker's descriptions of members."""
        return f"{self.broker(node_id)}, its descriptions"

    def group(self, group: str) -> str:
        return f"{self.cluster}: group {group}"

    def add(self, key: str, reason: str) -> None:
        """Set a reason; log it if it is new."""
        if key not in self.reasons:
            _log.warning("%s: %s", self._prefix, reason)
        self.reasons[key] = f"{self._prefix}: {reason}"

    def add_groups(self, reasons: Mapping[str, str]) -> None:
        """Set reasons by group; log one line for all groups with the same new reason."""
        new: dict[str, list[str]] = {}
        for group, reason in reasons.items():
            if self.group(group) not in self.reasons:
                new.setdefault(reason, []).append(group)
            self.reasons[self.group(group)] = f"{self._prefix}: group {group}: {reason}"
        for reason, groups in new.items():
            _log.warning("%s: group %s: %s", self._prefix, first_few(sorted(groups)), reason)

    def recover(self, key: str) -> None:
        """Remove a reason, and log the recovery."""
        if self.reasons.pop(key, None) is not None:
            _log.info("%s %s", key, self._recovered)

    def discard(self, *keys: str) -> None:
        for key in keys:
            self.reasons.pop(key, None)

    def retain(self, keys: Container[str]) -> None:
        self.discard(*(key for key in self.reasons if key not in keys))
