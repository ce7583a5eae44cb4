"""Which groups are looked at. Pure."""

from __future__ import annotations

from sparklag_schemas import GroupSettings
from sparklag_schemas.name_patterns import NamePatterns


class GroupPatterns:
    """`allow` and `deny` of the settings, for whole group ids. Without any to allow, none is."""

    def __init__(self, settings: GroupSettings) -> None:
        self._allows_any = bool(settings.allow)
        self._patterns = NamePatterns(settings.allow, settings.deny)

    def match(self, group: str) -> bool:
        """Whether it is looked at."""
        return self._allows_any and self._patterns.take(group)
