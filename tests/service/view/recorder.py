"""A follower of the view, for tests."""

from __future__ import annotations

from collections.abc import Mapping

from sparklag_service.view.feed import Arrival


class Recorder:
    def __init__(self) -> None:
        self.restarted: Mapping[int, int] = {}
        self.offsets: list[int] = []

    def began(self, restarted: Mapping[int, int], ends: Mapping[int, int]) -> None:
        self.restarted = restarted

    def arrived(self, arrival: Arrival) -> None:
        self.offsets.append(arrival.offset)
