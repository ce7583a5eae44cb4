"""Burrow's rules here beside the published ones, over random windows of commits."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import hypothesis

from sparklag_schemas import PartitionLag, TopicLag
from sparklag_service.evaluation.burrow import CommitWindow
from tests.service.states import moment, state

CASES = 200 * hypothesis.settings().max_examples
WINDOW = 10
"""Commits, and log ends, that Burrow keeps of each partition."""
END_INTERVAL_S = 10


class Published(NamedTuple):
    """What Burrow has of a partition: its commits, and the log ends."""

    offsets: Sequence[int]
    lags: Sequence[int]
    times_s: Sequence[int]
    ends: Sequence[int]

    def status(self, now_s: int, lag: int, allowed_lag: int) -> str:
        """Its rules, in its order; without STALL, for which an offset must be committed twice."""
        offsets, lags, times_s, ends = (column[-WINDOW:] for column in self)
        if lag <= allowed_lag:
            return "OK"
        if now_s - times_s[-1] > times_s[-1] - times_s[0] and all(e > offsets[-1] for e in ends):
            return "STOP"
        for i in range(1, len(offsets)):
            if offsets[i] < offsets[i - 1]:
                if max(offsets[i:]) < offsets[i - 1]:
                    return "REWIND"
                break
        if min(lags) <= allowed_lag:
            return "OK"
        return "WARN" if list(lags) == sorted(lags) else "OK"


def run_case(seed: int) -> tuple[str, str, object]:
    """The status here, the published one, and the case."""
    chance = random.Random(seed)
    allowed_lag = chance.choice([0, 0, 3])
    per_second, gap_s = chance.choice([0, 1, 4]), chance.choice([2, 5, 20, 60])
    window = CommitWindow()
    offsets, lags, times_s, ends = list[int](), list[int](), list[int](), list[int]()
    now_s, end, next_end_s = 1_000, chance.randint(20, 200), 0
    commits = chance.randint(2, 2 * WINDOW)
    processed_at = 0
    topic = TopicLag(topic="orders", source=0, partitions=[])
    while len(offsets) < commits or chance.random() < 0.7:
        now_s += chance.randint(1, gap_s)
        end += chance.randint(0, per_second * gap_s) + (len(offsets) < commits)
        if len(offsets) < commits:
            last = offsets[-1] if offsets else -1
            offset = max(last + 1, end - chance.choice([0, 1, 4, 10, 30, end]))
            if last > 0 and chance.random() < 0.1:
                offset = chance.randint(0, last - 1)
            offsets.append(offset)
            lags.append(end - offset)
            times_s.append(now_s)
            processed_at = moment(now_s).now_ms
        if now_s >= next_end_s:
            next_end_s = now_s + END_INTERVAL_S
            ends.append(end)
        partition = PartitionLag(
            partition=0, processed_offset=offsets[-1], latest_offset=end, lag=end - offsets[-1]
        )
        topic.partitions[:] = [partition]
        group = state(processed_at=processed_at)
        window = window.after(group, [topic], moment(now_s), WINDOW)
    [topic] = window.judged([topic], moment(now_s), allowed_lag, least_s=0.0)
    published = Published(offsets, lags, times_s, ends)
    expected = published.status(now_s, end - offsets[-1], allowed_lag)
    return topic.partitions[0].status, expected, (allowed_lag, now_s, end, published)


def test_random_windows_are_judged_as_burrow_reports() -> None:
    received: dict[str, int] = {}
    for seed in range(CASES):
        status, expected, case = run_case(seed)
        assert status == expected, f"seed {seed}: {status}, Burrow has {expected}: {case}"
        received[status] = received.get(status, 0) + 1
    # Each rule was tried.
    fewest = min(received.get(status, 0) for status in ("OK", "WARN", "REWIND", "STOP"))
    assert fewest > CASES // 100, received
