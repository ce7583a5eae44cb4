"""The age of the first unprocessed record of a partition, and the method that gives it. Pure."""

from __future__ import annotations

from typing import Final

from sparklag_schemas import IsolationLevel, PartitionLag, TimeLagMethod
from sparklag_service.enrichment.cluster_offsets import MeasureTime, RecordTime, TopicOffsets
from sparklag_service.enrichment.log_end_history import Bracket, LatestOffset, LogEndHistory

_OLDER_THAN_ITS_ARRIVAL_S: Final = 86_400.0
"""A timestamp this much earlier than the record's arrival is an event time, not the time from which
the record could be processed: the topic was filled with old data."""
_OLDEST_S: Final = 31_536_000.0
"""A year. An older timestamp, of a record with an unknown arrival, is an event time."""
_NEVER_S: Final = 1e9
"""A higher age was not measured, and does not count on."""
_REFINE_EVERY_S: Final = 10.0
"""How often a floor is computed again: newer data may narrow the arrival time."""
_NO_TIMES: Final = LogEndHistory()


class TopicAges:
    """The ages of records of one topic in one measurement.

    *Sampled*: from the timestamp of the record. *Interpolated*: the record arrived between two
    reads of the log end, at a time computed as if records arrived evenly. *Floor*: the record
    existed at the first read, so this is its minimum age.
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
        self._level = level
        self._measure_time = measure_time
        self._now_s = now_s = measure_time.now_s
        self._since_s = since_s
        self._refines = now_s // _REFINE_EVERY_S != (now_s - since_s) // _REFINE_EVERY_S
        self._bracket: Bracket | None = None

    def age(
        self, number: int, offset: int, latest: LatestOffset, unmoved: PartitionLag | None
    ) -> tuple[float, str]:
        """Age in seconds of the record at `offset`, which is before `latest`, and its method.

        `unmoved`: the partition in the last event, if at the same offset. The age grows with time
        from there; it is computed again if more data may exist.
        """
        if unmoved is not None and unmoved.time_lag_s is not None and unmoved.time_lag_s < _NEVER_S:
            previous = unmoved.time_lag_method
            if previous == "sampled" or (
                previous is not None
                and (previous != "floor" or not self._refines)
                and not (self._sampled and self._sample(number, offset))
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

    def _sample(self, number: int, offset: int) -> RecordTime | None:
        """The record's own timestamp. None: not read."""
        sampled = self._sampled.get(number)
        if sampled is None or sampled.offset != offset or sampled.level != self._level:
            return None
        return sampled

    def _sampled_s(self, number: int, offset: int, bracket: Bracket) -> float | None:
        """When the record arrived by its timestamp. None: no timestamp, or an implausible one."""
        sampled = self._sample(number, offset)
        if sampled is None:
            return None
        at_s = self._measure_time.monotonic_s(sampled.timestamp_ms)
        if bracket.older_s is not None:
            earliest_s = bracket.older_s - _OLDER_THAN_ITS_ARRIVAL_S
        else:
            earliest_s = self._measure_time.now_s - _OLDEST_S
        if at_s < earliest_s:
            return None
        # A timestamp later than the arrival: the producer's clock is ahead.
        return at_s if at_s <= bracket.newer_s else None


def _in_ms(seconds: float) -> float:
    """Rounds to the millisecond, not negative. (`round` takes four times as long.)"""
    in_ms = int(seconds * 1000 + 0.5)
    return in_ms / 1000 if in_ms > 0 else 0.0
