"""Topics that may not be read: each is left alone for a while, and told of once."""

from __future__ import annotations

import logging
from typing import Final

_log = logging.getLogger(__name__)
LEFT_ALONE_S: Final = 600.0


class Refusals:
    """Of the cluster `alias`. Times are `time.monotonic()`."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._until_s: dict[str, float] = {}

    def begin(self, topic: str, now_s: float) -> bool:
        """The topic may not be read; whether that is news."""
        known_s = self._until_s.get(topic)
        self._until_s[topic] = now_s + LEFT_ALONE_S
        if known_s is None:
            _log.warning(
                "Kafka cluster %s: no right to read topic %s: the age of its records is computed"
                " from when the log grew; to read it, allow Read, or set time_lag.sample = false",
                *(self._alias, topic),
            )
        return known_s is None or known_s <= now_s

    def end(self, topic: str) -> None:
        """It can be read."""
        self._until_s.pop(topic, None)

    def is_left_alone(self, topic: str, now_s: float) -> bool:
        return self._until_s.get(topic, now_s) > now_s
