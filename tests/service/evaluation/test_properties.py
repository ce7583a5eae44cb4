"""Properties of lag events, whatever happens to a query and whatever is received and measured."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import get_args

import hypothesis
from hypothesis import given
from hypothesis import strategies as st

from sparklag_schemas import LagEvent, SourcePosition, Status, Thresholds, decode_lag_event, encode
from sparklag_service.enrichment.cluster_offsets import (
    ClusterOffsets,
    OffsetsByCluster,
    Topic,
    TopicOffsets,
)
from sparklag_service.enrichment.log_end_history import LatestOffset
from tests.messages import OTHER_RUN, RUN_ID, observation
from tests.service.evaluation.trace import Trace
from tests.service.states import NO_LEADER, Follower, moment

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


def check(result: LagEvent) -> None:
    """What holds for every event."""
    partitions = [one for topic in result.topics for one in topic.partitions]
    known = [one.unread for one in partitions if one.unread is not None]
    for topic in result.topics:
        of_topic = [one.unread for one in topic.partitions if one.unread is not None]
        assert topic.total_lag == (sum(of_topic) if of_topic else None)
        numbers = [one.partition for one in topic.partitions]
        assert numbers == sorted(set(numbers))
    assert result.total_lag == (sum(known) if known else None)
    assert result.max_lag == (max(known) if known else None)
    assert result.unknown_partitions == len(partitions) - len(known)
    assert result.lost_records == sum(one.lost_records or 0 for one in partitions)
    assert result.reason or (result.status == "OK" and result.total_lag is not None)
    for one in partitions:
        assert one.reason or (one.status == "OK" and one.lag is not None)
        assert (one.lost_records is not None) == (one.status == "DATA_LOSS")
        assert one.rewound_from is not None or one.status != "REWIND"
        if one.lag is None:
            assert one.status != "OK"
            continue
        assert one.latest_offset is not None
        start = one.processed_offset if one.processed_offset is not None else one.earliest_offset
        assert start is not None
        assert one.lag == one.latest_offset - start >= 0
        assert one.measured_at is None or one.measured_at <= result.measured_at
    # The numbers of a wrong kind do not get past the codec.
    assert decode_lag_event(encode(result)) == result


def _is_sound(event: LagEvent) -> None:
    check(event)
    assert event.status in get_args(Status)
    partitions = [one for topic in event.topics for one in topic.partitions]
    for number in (
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
        is_over = one.unread == 0 and one.lag != 0
        assert (one.lag is None or is_over) == (one.time_lag_s is None)
        assert (one.time_lag_method is None) == (not one.unread)
    assert event.skew is None or 0 < event.skew <= 1
    if event.catch_up_s is None:
        assert event.catch_up_reason


def anything_reported(dice: random.Random, now_s: float) -> OffsetsByCluster:
    offsets: dict[str, ClusterOffsets] = {}
    for cluster in ("default", "east"):
        if dice.random() < 0.1:
            continue
        answer: dict[str, TopicOffsets] = {}
        offsets[cluster] = answer
        for topic in ("orders", "returns"):
            of_topic = answer[topic] = TopicOffsets()
            kind = dice.choice(["there"] * 6 + ["gone", "forbidden", "unseen"])
            if kind == "there":
                topic_id = dice.choice(["id-a", "id-a", "id-a", "id-b", None])
                of_topic.description = Topic(topic_id, tuple(range(dice.randint(1, 4))))
            elif kind != "unseen":
                missing = f"topic {topic} is {kind}"
                of_topic.description = Topic(None, (), missing, kind == "gone")
            for number in range(4):
                for latest in of_topic.latest.values():
                    if dice.random() < 0.8:
                        requested_s = now_s - dice.choice([0, 0, 0, 1, 59, 61])
                        latest[number] = LatestOffset(dice.randint(0, 20), requested_s)
                if dice.random() < 0.8:
                    start = dice.choice([0, 0, dice.randint(0, 20)])
                    of_topic.earliest[number] = start
                if dice.random() < 0.2:
                    of_topic.unknown[number] = NO_LEADER
    return offsets


def any_position(dice: random.Random, index: int) -> SourcePosition:
    topics = dice.sample(["orders", "returns"], dice.randint(1, 2))
    processed = {
        topic: {number: dice.randint(0, 20) for number in range(dice.randint(1, 4))}
        for topic in topics
        if dice.random() < 0.9
    }
    return SourcePosition(
        source=index,
        processed=processed if dice.random() < 0.8 else None,
        topics=dice.choice([None, topics, ["orders", "returns"]]),
        assigned=dice.choice([None, None, {"orders": [0, 2]}]),
        isolation_level=dice.choice(["read_uncommitted", "read_committed"]),
    )


def test_whatever_is_received_and_measured_no_lag_is_negative_or_without_a_reason() -> None:
    dice = random.Random(3)
    for _ in range(3 * hypothesis.settings().max_examples):
        query = Follower()
        for step in range(dice.randint(1, 12)):
            now_s = 200.0 + dice.choice([step, step, dice.randint(0, 12)])
            cause = dice.choice(["started", "progress", "progress", "idle", "terminated"])
            query.hear(
                observation(
                    cause=cause,
                    cluster=dice.choice(["default", "default", "east"]),
                    run_id=dice.choice([RUN_ID, RUN_ID, OTHER_RUN]),
                    observed_at=1_790_000_000_000 + dice.randint(0, 99_000),
                    sources=[any_position(dice, index) for index in range(dice.randint(1, 2))],
                    exception="boom" if cause == "terminated" and dice.random() < 0.5 else None,
                )
            )
            for _ in range(dice.randint(0, 3)):
                before = query.last
                result = query.measure(
                    anything_reported(dice, now_s), moment(now_s), silent=dice.random() < 0.1
                )
                check(result)
                assert before is None or result.version > before.version
                if dice.random() < 0.1:
                    query.restart()
                now_s += dice.choice([0, 1, -1])
