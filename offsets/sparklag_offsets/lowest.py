"""One position of a query that reads a topic more than once: where the slower source is. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparklag_schemas import Offsets


def lowest(positions: Sequence[Offsets]) -> Offsets:
    """Of each partition the offset that every one of `positions`, at least one, has reached."""
    if len(positions) == 1:
        return positions[0]
    found: Offsets = {}
    for offsets in positions:
        for topic, numbers in offsets.items():
            of_topic = found.setdefault(topic, {})
            for number, offset in numbers.items():
                of_topic[number] = min(offset, of_topic.get(number, offset))
    return found
