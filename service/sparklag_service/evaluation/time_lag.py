"""How old the first unprocessed record of a partition is, and how that is known. Pure."""

from __future__ import annotations

from typing import Final

from aiokafka.structs import TopicPartition

from sparklag_schemas import IsolationLevel, PartitionLag, TimeLagMethod
from sparklag_service.enrichment.cluster_offsets import ClusterOffsets
from sparklag_service.enrichment.log_end_history import Bracket, LatestOffset, LogEndHistory
from sparklag_service.enrichment.measure_time import Moment

_OLDER_THAN_ITS_ARRIVAL_S: Final = 86_400.0
"""A timestamp so much earlier than the record itself says when something happened, not when it
could have been processed: somebody filled the topic with old data."""
_OLDEST_S: Final = 31_536_000.0
"""A year. Of a record that nobody saw come no more is believed: it is its event's time."""
_NEVER_S: Final = 1e9
"""No age that was measured: it is not gone on from."""
_LOOK_AGAIN_S: Final = 10.0
"""How often more may be known of what was there before anyone looked."""
_UNSEEN: Final = LogEndHistory()


class TopicAges:
    """The ages of records of one topic at one moment.

    *Sampled*: by the timestamp that the record carries. *Interpolated*: the record came between the
    last look at the log that did not show it and the first that did; records are taken to come
    evenly between the two. *Floor*: it was there before anyone looked, so it is at least so old.
    """

    def __init__(
        self,
        name: str,
        said: ClusterOffsets,
        level: IsolationLevel,
        moment: Moment,
        since_s: float,
    ) -> None:
        """`since_s`: how long ago the topic was measured before."""
        self._name = name
        self._times = said.log_ends[level].get(name, _UNSEEN)
        self._sampled = said.record_times
        self._moment = moment
        self._now_s = now_s = moment.now_s
        self._since_s = since_s
        self._looks_again = now_s // _LOOK_AGAIN_S != (now_s - since_s) // _LOOK_AGAIN_S
        self._bracket: Bracket | None = None

    def age(
        self, number: int, offset: int, latest: LatestOffset, stands: PartitionLag | None
    ) -> tuple[float, str]:
        """Of the record at `offset`, which is before `latest`: seconds, and how they were found.

        `stands`: what was said of the partition last, where it was at that offset then. The record
        has grown older since; it is looked at anew where more may be known of it.
        """
        if stands is not None and stands.time_lag_s is not None and stands.time_lag_s < _NEVER_S:
            known = stands.time_lag_method
            if known == "sampled" or (
                known is not None
                and (known != "floor" or not self._looks_again)
                and not (self._sampled and self._is_sampled(number, offset))
            ):
                return _in_ms(stands.time_lag_s + self._since_s), known
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
        """Whether the record itself was read."""
        sampled = self._sampled.get(TopicPartition(self._name, number))
        return sampled is not None and sampled.offset == offset

    def _sampled_s(self, number: int, offset: int, bracket: Bracket) -> float | None:
        """By its timestamp, where that can be the time it came."""
        sampled = self._sampled.get(TopicPartition(self._name, number))
        if sampled is None or sampled.offset != offset:
            return None
        at_s = self._moment.monotonic_s(sampled.timestamp_ms)
        if bracket.older_s is not None:
            earliest_s = bracket.older_s - _OLDER_THAN_ITS_ARRIVAL_S
        else:
            earliest_s = self._moment.now_s - _OLDEST_S
        if at_s < earliest_s:
            return None
        # A clock that is ahead: the record was there before.
        return at_s if at_s <= bracket.newer_s else None


def _in_ms(seconds: float) -> float:
    """To the millisecond, not negative. `round` takes four times as long, for each partition."""
    in_ms = int(seconds * 1000 + 0.5)
    return in_ms / 1000 if in_ms > 0 else 0.0
