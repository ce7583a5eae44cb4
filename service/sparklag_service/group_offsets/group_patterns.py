"""Which groups are looked at. Pure."""

from __future__ import annotations

import re

from sparklag_schemas import GroupSettings


class GroupPatterns:
    """`allow` and `deny` of the settings, for whole group ids; what is denied is not allowed."""

    def __init__(self, settings: GroupSettings) -> None:
        self._allow = [re.compile(pattern) for pattern in settings.allow]
        self._deny = [re.compile(pattern) for pattern in settings.deny]

    def match(self, group: str) -> bool:
        """Whether it is looked at."""
        return any(pattern.fullmatch(group) for pattern in self._allow) and not any(
            pattern.fullmatch(group) for pattern in self._deny
        )
