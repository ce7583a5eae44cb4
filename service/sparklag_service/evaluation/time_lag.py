"""How old the first unprocessed record of a partition is, and how that is known. Pure."""

from __future__ import annotations

from typing import Final

from sparklag_schemas import IsolationLevel, PartitionLag, TimeLagMethod
from sparklag_service.enrichment.cluster_offsets import MeasureTime, TopicOffsets
from sparklag_service.enrichment.log_end_history import Bracket, LatestOffset, LogEndHistory

_OLDER_THAN_ITS_ARRIVAL_S: Final = 86_400.0
"""A timestamp that is so much earlier than the record's arrival is the time of an event, not when
the record could first be processed: the topic was filled with old data."""
_OLDEST_S: Final = 31_536_000.0
"""A year. An older timestamp of a record whose arrival nobody saw is the time of an event."""
_NEVER_S: Final = 1e9
"""An age above it was not measured, and is not continued."""
_REFINE_EVERY_S: Final = 10.0
"""How often a floor is computed anew: more may be known of when the record arrived."""
_NO_TIMES: Final = LogEndHistory()


class TopicAges:
    """The ages of records of one topic in one measurement.

    *Sampled*: by the timestamp that the record carries. *Interpolated*: the record arrived between
    two reads of the log end, the last before it and the first after it; records are taken to arrive
    evenly between the two. *Floor*: it was there at the first read, so it is at least so old.
    """

    def __init__(
        self,
        offsets: TopicOffsets,
        level: IsolationLevel,
        measure_time: MeasureTime,
        since_s: float,
    ) -> None:
        """`since_s`: seconds since the previous measurement."""
        self._times = offsets.log_ends.get(level, _NO_TIMES)
        self._sampled = offsets.record_times
        self._measure_time = measure_time
        self._now_s = now_s = measure_time.now_s
        self._since_s = since_s
        self._refines = now_s // _REFINE_EVERY_S != (now_s - since_s) // _REFINE_EVERY_S
        self._bracket: Bracket | None = None

    def age(
        self, number: int, offset: int, latest: LatestOffset, unmoved: PartitionLag | None
    ) -> tuple[float, str]:
        """Age in seconds of the record at `offset`, which is before `latest`, and its method.

        `unmoved`: the partition in the last event, where it was at the same offset. The record has
        grown older since; its age is computed anew where more may be known of it.
        """
        if unmoved is not None and unmoved.time_lag_s is not None and unmoved.time_lag_s < _NEVER_S:
            previous = unmoved.time_lag_method
            if previous == "sampled" or (
                previous is not None
                and (previous != "floor" or not self._refines)
                and not (self._sampled and self._is_sampled(number, offset))
            ):
                return _in_ms(unmoved.time_lag_s + self._since_s), previous
        bracket = self._bracket
        at_s = bracket.arrived_s(number, offset, latest) if bracket is not None else None
        if bracket is None or at_s is None:
            bracket = self._bracket = self._times.bracket(number, offset, latest)
            at_s = bracket.arrived_s(number, offset, latest)
            if at_s is None:
                at_s = bracket.newer_s
        method: TimeLagMethod = "floor" if bracket.older_s is None else "interpolated"
        if self._sampled:
            sampled_s = self._sampled_s(number, offset, bracket)
            if sampled_s is not None:
                at_s, method = sampled_s, "sampled"
        return _in_ms(self._now_s - at_s), method

    def _is_sampled(self, number: int, offset: int) -> bool:
        """Returns whether the record itself was read."""
        sampled = self._sampled.get(number)
        return sampled is not None and sampled.offset == offset

    def _sampled_s(self, number: int, offset: int, bracket: Bracket) -> float | None:
        """When the record arrived by its timestamp, where that can be."""
        sampled = self._sampled.get(number)
        if sampled is None or sampled.offset != offset:
            return None
        at_s = self._measure_time.monotonic_s(sampled.timestamp_ms)
        if bracket.older_s is not None:
            earliest_s = bracket.older_s - _OLDER_THAN_ITS_ARRIVAL_S
        else:
            earliest_s = self._measure_time.now_s - _OLDEST_S
        if at_s < earliest_s:
            return None
        # Later than its arrival: the producer's clock is ahead.
        return at_s if at_s <= bracket.newer_s else None


def _in_ms(seconds: float) -> float:
    """To the millisecond, not negative. (`round` takes four times as long for each partition.)"""
    in_ms = int(seconds * 1000 + 0.5)
    return in_ms / 1000 if in_ms > 0 else 0.0
