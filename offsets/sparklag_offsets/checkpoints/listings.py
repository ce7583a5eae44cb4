"""Listings of the two logs, kept for as long as the store says that nothing came or went."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from sparklag_offsets.checkpoints.files import CheckpointFiles, Listing, Log

_GRAIN_S: Final = 2.5
"""No file system's times are coarser. A folder that was listed less long after it changed may
have changed again since, with the same time."""
_TRUST_S: Final = 30.0
"""A mounted folder's time may be what its server said long ago; a listing asks it anew."""


@dataclass(frozen=True)
class _Listed:
    listing: Listing
    stamp: Hashable | None
    listed_s: float
    first_seen_s: float
    """When the folder was first seen with this stamp."""

    def still_holds(self, stamp: Hashable | None, now_s: float) -> bool:
        return (
            stamp is not None
            and self.stamp == stamp
            and self.listed_s - self.first_seen_s > _GRAIN_S
            and now_s - self.listed_s < _TRUST_S
        )


class Listings:
    """Of one checkpoint."""

    def __init__(self, files: CheckpointFiles) -> None:
        self._files = files
        self._listed: dict[Log, _Listed] = {}

    def list_log(self, log: Log) -> Listing:
        """As it is now. Raises CheckpointAway."""
        # Before the listing: what comes in between changes the stamp once more.
        stamp = self._files.stamp(log)
        now_s = time.monotonic()
        listed = self._listed.get(log)
        first_seen_s = now_s
        if listed is not None:
            if listed.still_holds(stamp, now_s):
                return listed.listing
            if listed.stamp == stamp:
                first_seen_s = listed.first_seen_s
        listing = self._files.list_log(log)
        self._listed[log] = _Listed(listing, stamp, now_s, first_seen_s)
        return listing

    def are_unchanged(self) -> bool:
        """Whether the store says so of both logs, without a listing."""
        now_s = time.monotonic()
        for log in ("commits", "offsets"):
            listed = self._listed.get(log)
            if listed is None or not listed.still_holds(self._files.stamp(log), now_s):
                return False
        return True

    def clear(self) -> None:
        """List anew, whatever the store says."""
        self._listed.clear()
