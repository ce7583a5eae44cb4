"""Which groups a cluster has, and which broker coordinates each. Pure.

That a broker lists a group no more does not make it gone: its coordinator may have moved, or be
away. A group is gone when no broker lists it, and then its coordinator knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass
class Place:
    """Where a group is."""

    node: int | None
    """The broker that coordinates it. None: not known."""
    listed_in: int = 0
    """The last round in which a broker listed it."""
    unlisted: bool = False
    """No broker does; all were asked."""
    empty_since: int | None = None
    """The round in which its coordinator knew nothing of it for the first time."""


class GroupListing:
    """The groups by id. Brokers are asked for their lists in rounds."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self._round = self._ended_round = 0

    @property
    def is_complete(self) -> bool:
        """Whether every broker has answered in the last round, and a broker is known for each
        group."""
        return self._ended_round == self._round and all(
            place.node is not None for place in self.places.values()
        )

    def begin_round(self) -> None:
        """From here on all brokers are asked anew."""
        self._round += 1

    def listed(self, group: str, node: int) -> bool:
        """A broker says that it coordinates a group; whether that is new."""
        place = self.places.get(group)
        if place is None:
            self.places[group] = Place(node, self._round)
            return True
        moved = place.node != node
        place.node = node
        place.listed_in = self._round
        place.unlisted = False
        return moved

    def end_round(self, remembered: Iterable[str] = ()) -> list[str]:
        """Every broker has answered: the groups that none of them lists, `remembered` ones too."""
        self._ended_round = self._round
        for group in remembered:
            self.places.setdefault(group, Place(None))
        missing = [g for g, place in self.places.items() if place.listed_in != self._round]
        for group in missing:
            self.places[group].unlisted = True
        return missing

    def found(self, group: str, node: int | None) -> None:
        """Some broker says who coordinates a group that is listed nowhere. None: nobody does."""
        if group in self.places:
            self.places[group].node = node

    def moved(self, group: str) -> None:
        """Its coordinator says that it is not."""
        if group in self.places:
            self.places[group].node = None

    def has_offsets(self, group: str) -> None:
        """Its coordinator knows of offsets."""
        if group in self.places:
            self.places[group].empty_since = None

    def has_none(self, group: str) -> bool | None:
        """Its coordinator knows of no offsets: whether the group is there all the same.

        None where that is not known before the lists are read again.
        """
        place = self.places[group]
        if place.unlisted:
            return False
        if place.empty_since is None:
            place.empty_since = self._round
        return True if place.listed_in > place.empty_since else None

    def forget(self, group: str) -> None:
        """It is gone."""
        self.places.pop(group, None)
