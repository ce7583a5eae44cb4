"""Places on `consumer-lag`: what the ids of the live stream are made of. Pure.

An id names, for each partition, the last offset that its reader has seen: `3:1207` of one query,
which is all in one partition, `0:88,1:93,3:1207` of all, `-` of one who has seen nothing yet. Every
instance reads the same topic, so what one instance said another one understands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

NOTHING_SEEN = -1

_NO_PLACES = "-"
"""Not empty: that is no id to a reader, who would come back without one."""
_ID = re.compile(r"\d{1,9}:\d{1,19}(,\d{1,9}:\d{1,19})*")
_LONGEST_ID = 64 * 1024


def begins_anew(last: int | None, start: int, end: int) -> bool:
    """Whether what is read of a partition from `start` on, up to `end`, does not go on after
    `last`: it was not read before, or something is left out, or it is another topic's now."""
    return last is None or start > last + 1 or end <= last


def format_id(places: Mapping[int, int]) -> bytes:
    """The id of one who has seen so much: partition, offset."""
    seen = [f"{partition}:{offset}" for partition, offset in sorted(places.items()) if offset >= 0]
    return (",".join(seen) or _NO_PLACES).encode()


def parse_id(text: str) -> dict[int, int] | None:
    """The places in an id. None: it is none of ours."""
    if text == _NO_PLACES:
        return {}
    if len(text) > _LONGEST_ID or not _ID.fullmatch(text):
        return None
    places: dict[int, int] = {}
    for place in text.split(","):
        partition, _, offset = place.partition(":")
        places[int(partition)] = int(offset)
    return places
