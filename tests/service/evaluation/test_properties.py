"""What holds whatever happens to a query."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from sparklag_schemas import LagEvent, Status, Thresholds, decode_lag_event, encode
from tests.service.evaluation.trace import Trace

PARTITIONS = 3

counts = st.lists(st.integers(0, 500), min_size=PARTITIONS, max_size=PARTITIONS)
steps = st.one_of(
    st.tuples(st.just("time"), st.floats(0.1, 400.0), counts),
    st.tuples(st.just("batch"), st.floats(0.0, 30.0), st.integers(0, 400)),
    st.tuples(st.just("say"), st.sampled_from(["idle", "refresh", "started", "terminated"])),
    st.tuples(st.just("silent"), st.floats(0.1, 60.0)),
    st.tuples(st.just("rewind"), st.integers(0, 400)),
    st.tuples(st.just("delete"), st.integers(0, 900)),
    st.tuples(st.just("away"), st.sets(st.integers(0, PARTITIONS - 1))),
    st.tuples(st.just("sample"), st.integers(-(10**13), 10**13)),
    st.tuples(st.just("clock"), st.floats(-4_000.0, 4_000.0)),
    st.tuples(st.just("other instance"), st.floats(0.1, 90.0)),
)


def play(trace: Trace, step: tuple[object, ...]) -> None:
    match step:
        case ("time", float(seconds), list(came)):
            trace.produce = lambda _: came
            trace.pass_time(seconds)
        case ("batch", float(duration_s), int(most)):
            trace.batch(duration_s, most=most)
        case ("say", str(cause)):
            trace.say(cause)
        case ("silent", float(seconds)):
            trace.pass_time(seconds, silent=True)
        case ("rewind", int(back)):
            trace.at = [max(0, at - back) for at in trace.at]
            trace.say("progress")
        case ("delete", int(records)):
            pairs = zip(trace.starts, trace.ends, strict=True)
            trace.starts = [min(end, start + records) for start, end in pairs]
        case ("away", set(numbers)):
            trace.unread = numbers
        case ("sample", int(timestamp_ms)):
            trace.sampled(0, timestamp_ms)
        case ("clock", float(seconds)):
            trace.clock_off_s += seconds
        case ("other instance", float(seconds)):
            trace.now_s += seconds
            trace.change_hands()


@given(st.lists(steps, min_size=1, max_size=25), st.integers(2, 5))
def test_numbers_are_what_they_can_be(script: list[tuple[object, ...]], window: int) -> None:
    trace = Trace(
        PARTITIONS,
        refresh_s=10.0,
        thresholds=Thresholds(window=window, stall_after_s=60, max_lag=1_000),
    )
    for step in script:
        play(trace, step)
        trace.measure()
    for event in trace.events:
        _is_sound(event)
    for older, newer in pairwise(trace.events):
        assert older.version < newer.version
        if newer.status != older.status:
            assert newer.status_since == newer.measured_at or newer.status_since is not None


def _is_sound(event: LagEvent) -> None:
    partitions = [one for topic in event.topics for one in topic.partitions]
    lags = [one.lag for one in partitions if one.lag is not None]
    assert event.status in get_args(Status)
    assert (event.reason is None) <= (event.status == "OK")
    assert event.total_lag == (sum(lags) if lags else None)
    assert event.unknown_partitions == len(partitions) - len(lags)
    for number in (
        *lags,
        *(one.time_lag_s for one in partitions),
        *(one.headroom_s for one in partitions),
        event.input_rate,
        event.processed_rate,
        event.batch_rate,
        event.catch_up_s,
        event.min_headroom_s,
        event.usual_batch_s,
        event.usual_interval_s,
    ):
        assert number is None or (math.isfinite(number) and number >= 0)
    for one in partitions:
        assert (one.lag is None) == (one.time_lag_s is None)
        assert (one.time_lag_method is None) == (not one.lag)
    assert event.skew is None or 0 < event.skew <= 1
    if event.catch_up_s is None:
        assert event.catch_up_reason
    assert decode_lag_event(encode(event)) == event
