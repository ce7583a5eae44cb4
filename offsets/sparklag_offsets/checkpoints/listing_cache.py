"""Listings of the two logs, cached for as long as the store reports no change."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from sparklag_offsets.checkpoints.files import CheckpointFiles, Listing, Log

_TIME_RESOLUTION_S: Final = 2.5
"""No file system's times are coarser. A folder listed sooner than this after a change may have
changed again with the same time."""
_MAX_AGE_S: Final = 30.0
"""A mounted folder's time may be a stale value of its client; a listing asks the server."""


@dataclass(frozen=True)
class _CachedListing:
    listing: Listing
    token: Hashable | None
    listed_at_s: float
    token_since_s: float

    def is_valid(self, token: Hashable | None, now_s: float) -> bool:
        return (
            token is not None
            and self.token == token
            and self.listed_at_s - self.token_since_s > _TIME_RESOLUTION_S
            and now_s - self.listed_at_s < _MAX_AGE_S
        )


class ListingCache:
    """Of one checkpoint."""

    def __init__(self, files: CheckpointFiles) -> None:
        self._files = files
        self._cached: dict[Log, _CachedListing] = {}

    def list_log(self, log: Log) -> Listing:
        """The batches now. Raises CheckpointAway."""
        # Read before the listing: a change in between changes the token again.
        token = self._files.change_token(log)
        now_s = time.monotonic()
        cached = self._cached.get(log)
        token_since_s = now_s
        if cached is not None:
            if cached.is_valid(token, now_s):
                return cached.listing
            if cached.token == token:
                token_since_s = cached.token_since_s
        listing = self._files.list_log(log)
        self._cached[log] = _CachedListing(listing, token, now_s, token_since_s)
        return listing

    def is_current(self) -> bool:
        """Whether both logs are unchanged according to the store, without a listing."""
        now_s = time.monotonic()
        for log in ("commits", "offsets"):
            cached = self._cached.get(log)
            if cached is None or not cached.is_valid(self._files.change_token(log), now_s):
                return False
        return True

    def clear(self) -> None:
        """List again at the next call."""
        self._cached.clear()
