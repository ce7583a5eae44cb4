"""Partitions beside what was said of them before. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparklag_schemas import PartitionLag


def aligned(
    partitions: Sequence[PartitionLag], numbers: Sequence[int]
) -> Sequence[PartitionLag | None]:
    """Those of `numbers`, in that order; None where there was none."""
    # Mostly the same ones: no dictionary of thousands is made for each measurement.
    if [one.partition for one in partitions] == numbers:
        return partitions
    known = {one.partition: one for one in partitions}
    return [known.get(number) for number in numbers]
