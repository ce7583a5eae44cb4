"""Every rule by which observations become records."""

from __future__ import annotations

from typing import Any

import pytest

from sparklag_offsets.errors import RecordRefused
from sparklag_offsets.store.batch_sequence import BatchSequence, next_records
from sparklag_schemas import Batch
from tests.messages import OTHER_RUN, RUN_ID
from tests.offsets.store.batches import (
    START_MS,
    at_ms,
    linked,
    output,
    ranges,
    recorded,
    repeated,
    source,
    spans,
)


def test_the_first_batch_that_is_observed_begins_the_records() -> None:
    (first,) = recorded([output(7)])
    assert spans([first]) == [(0, 7, 7)]
    assert ranges(first) == {0: (70, 80)}
    assert (first.run_id, first.processed_at, first.is_inferred) == (RUN_ID, at_ms(7), False)


def test_the_first_observed_batch_may_have_no_beginning() -> None:
    (first,) = recorded([repeated(7)])
    assert ranges(first) == {0: (None, 80)}


@pytest.mark.parametrize("cause", ["idle", "refresh", "terminated"])
def test_a_position_that_is_reported_again_adds_nothing(cause: str) -> None:
    assert spans(recorded([output(0), output(0), repeated(0, cause), output(0)])) == [(0, 0, 0)]


@pytest.mark.parametrize("cause", ["idle", "refresh", "terminated"])
def test_an_unobserved_batch_is_computed_from_the_next(cause: str) -> None:
    records = recorded([output(0), repeated(1, cause), output(2)])
    assert spans(records) == [(0, 0, 0), (0, 1, 1), (0, 2, 2)]
    assert [ranges(r)[0] for r in records] == [(0, 10), (10, 20), (20, 30)]


@pytest.mark.parametrize("newest", [2, 9])
def test_unobserved_batches_are_one_record_where_the_next_has_its_beginning(newest: int) -> None:
    records = recorded([output(0), output(newest)])
    assert spans(records) == [(0, 0, 0), (0, 1, newest - 1), (0, newest, newest)]
    between = records[1]
    assert ranges(between) == {0: (10, 10 * newest)}
    assert ranges(records[2]) == {0: (10 * newest, 10 * newest + 10)}
    assert (between.is_inferred, between.run_id) == (True, None)
    # They had completed when the next one began.
    assert between.processed_at == at_ms(newest) - 900


@pytest.mark.parametrize("newest", [2, 9])
def test_unobserved_batches_join_the_next_where_it_has_no_beginning(newest: int) -> None:
    records = recorded([output(0), repeated(newest)])
    assert spans(records) == [(0, 0, 0), (0, 1, newest)]
    assert ranges(records[1]) == {0: (10, 10 * newest + 10)}
    assert not records[1].is_inferred


def test_what_reports_nothing_of_a_position_adds_nothing() -> None:
    nothing = [
        output(None),
        output(0, source(None)),
        output(0, source({})),
        output(0, origin="group", run_id=None),
    ]
    assert recorded(nothing) == []


def test_sources_are_kept_apart() -> None:
    one: dict[str, Any] = {"source": 0, "bootstrap_servers": "a:9092"}
    other: dict[str, Any] = {"source": 1, "bootstrap_servers": "b:9092"}
    first, second = recorded(
        [
            output(0, source({"orders": {0: 5}}, **one), source({"orders": {0: 7}}, **other)),
            output(1, source({"orders": {0: 6}}, **one), source({"orders": {0: 9}}, **other)),
        ]
    )
    assert ranges(second, number=0) == {0: (5, 6)}
    assert ranges(second, number=1) == {0: (7, 9)}
    assert [topic.bootstrap_servers for topic in first.topics] == ["a:9092", "b:9092"]


def test_a_source_of_which_nothing_is_known_since_a_restart_is_where_it_was() -> None:
    both = output(0, source({"a": {0: 5}}), source({"b": {0: 7}}, source=1))
    one = output(1, source({"a": {0: 6}}, {"a": {0: 5}}), source(None, source=1), run_id=OTHER_RUN)
    again = output(2, source({"a": {0: 6}}), source({"b": {0: 8}}, source=1), run_id=OTHER_RUN)
    records = recorded([both, one, again])
    assert spans(records) == [(0, 0, 0), (0, 1, 1), (0, 2, 2)]
    assert ranges(records[1], "b", 1) == {0: (7, 7)}
    assert ranges(records[2], "b", 1) == {0: (7, 8)}


def test_a_source_without_data_keeps_its_position_through_unobserved_batches() -> None:
    both = output(0, source({"a": {0: 5}}), source({"b": {0: 7}}, source=1))
    later = output(3, source({"a": {0: 9}}, {"a": {0: 8}}), source({"b": {0: 7}}, source=1))
    _, between, last = recorded([both, later])
    assert (ranges(between, "a"), ranges(between, "b", 1)) == ({0: (5, 8)}, {0: (7, 7)})
    assert (ranges(last, "a"), ranges(last, "b", 1)) == ({0: (8, 9)}, {0: (7, 7)})


def test_partitions_and_topics_that_were_added_begin_where_their_batch_reports() -> None:
    grown = source({"new": {0: 4}, "orders": {0: 12, 1: 3}}, {"orders": {0: 10, 1: 2}})
    _, second = recorded([output(0), output(1, grown)])
    assert ranges(second) == {0: (10, 12), 1: (2, 3)}
    # Its beginning is not known.
    assert ranges(second, "new") == {0: (None, 4)}


def test_a_query_that_names_its_partitions_is_known_by_it() -> None:
    named = source({"orders": {0: 5}}, assigned={"orders": [0]})
    (first,) = recorded([output(0, named)])
    assert [topic.assigned for topic in first.topics] == [True]


def test_kafkas_id_of_the_topic_and_its_brokers_are_kept() -> None:
    position = source({"orders": {0: 5}}, bootstrap_servers="b:9092")
    (first,) = next_records(
        output(0, position), BatchSequence(), lambda at, topic: f"{topic} at {at}"
    ).records
    assert [topic.topic_id for topic in first.topics] == ["orders at b:9092"]


def test_another_run_that_repeats_the_last_batch_as_it_was_planned_adds_nothing() -> None:
    again = output(1, run_id=OTHER_RUN, observed_at=at_ms(5))
    assert spans(recorded([output(0), output(1), again])) == [(0, 0, 0), (0, 1, 1)]


def test_another_run_that_did_the_last_batch_otherwise_begins_a_generation() -> None:
    otherwise = output(1, source({"orders": {0: 17}}), run_id=OTHER_RUN, observed_at=at_ms(5))
    records = recorded([output(0), output(1), otherwise])
    assert spans(records) == [(0, 0, 0), (0, 1, 1), (1, 1, 1)]
    assert ranges(records[2]) == {0: (None, 17)}


def test_a_run_from_an_earlier_batch_begins_a_generation_and_goes_on_there() -> None:
    back = [output(n, run_id=OTHER_RUN, observed_at=at_ms(20 + n)) for n in (3, 4, 6)]
    records = recorded([*(output(n) for n in range(8)), *back])
    assert spans(records)[8:] == [(1, 3, 3), (1, 4, 4), (1, 5, 5), (1, 6, 6)]
    assert ranges(records[8]) == {0: (30, 40)}
    # The batch completes now, not when its number did the first time.
    assert records[8].processed_at >= records[7].processed_at


def test_a_run_that_contradicts_its_last_record_did_not_write_that() -> None:
    forged = output(6, source({"orders": {0: 900}}, {"orders": {0: 40}}))
    records = recorded(
        [output(3), output(4), forged, output(5), output(5, observed_at=at_ms(7)), output(8)]
    )
    assert spans(records)[2:] == [(0, 5, 5), (0, 6, 6), (1, 5, 5), (1, 6, 7), (1, 8, 8)]
    assert ranges(records[4]) == {0: (50, 60)}
    # What it repeats late it has not taken back.
    assert spans(recorded([output(5), output(3, observed_at=at_ms(4))])) == [(0, 5, 5)]


def test_a_batch_that_leaps_is_refused_and_the_next_is_recorded() -> None:
    chain = linked(BatchSequence(), output(4))[0]
    for batch_id in (4 + 2_001, 10**15):
        leap = output(batch_id, observed_at=at_ms(6) + 100)
        with pytest.raises(RecordRefused, match="no query is so fast"):
            linked(chain, leap)
    assert linked(chain, output(5))[1].records


def test_one_record_of_another_run_holds_up_no_query_that_goes_on() -> None:
    forged = output(1, source({"orders": {0: 900}}), run_id=OTHER_RUN)
    ours = [output(n, batch=Batch(started_at=at_ms(n) + 200, rows=1)) for n in (2, 3)]
    records = recorded([output(0), forged, *ours, output(4, run_id=OTHER_RUN)])
    assert spans(records) == [(0, 0, 0), (0, 1, 1), (1, 2, 2), (1, 3, 3)]
    assert ranges(records[-1]) == {0: (30, 40)}


def test_a_late_observation_of_an_older_run_adds_nothing() -> None:
    records = recorded([output(0), output(1, run_id=OTHER_RUN), output(0), output(2), repeated(9)])
    assert spans(records) == [(0, 0, 0), (0, 1, 1)]


def test_the_runs_before_a_query_went_back_may_be_received_again() -> None:
    early = [output(n) for n in range(9)]
    back = [output(n, run_id=OTHER_RUN, observed_at=at_ms(20 + n)) for n in (3, 4)]
    records = recorded([*early, *back])
    # A recorder that has just started knows the newest record, and no runs.
    again = BatchSequence.ending_with(records[-1])
    assert recorded([*early, *back], again) == []


def test_a_run_beside_a_newer_one_is_reported_and_not_recorded() -> None:
    chain = BatchSequence()
    for one in (output(0), output(1, run_id=OTHER_RUN), output(2, run_id=OTHER_RUN)):
        chain, _ = linked(chain, one)
    beside = output(3, batch=Batch(started_at=at_ms(9), rows=1))
    chain, added = linked(chain, beside)
    assert (added.records, added.past_run_id) == ((), RUN_ID)
    assert linked(chain, output(3, run_id=OTHER_RUN))[1].records


def test_a_clock_that_steps_back_does_not_take_processed_at_back() -> None:
    early = output(1, processed_at=START_MS - 50_000, observed_at=START_MS - 49_900)
    records = recorded([output(0), early, output(2)])
    assert spans(records) == [(0, 0, 0), (0, 1, 1), (0, 2, 2)]
    assert [r.processed_at for r in records] == [at_ms(0), at_ms(0), at_ms(2)]


def test_a_batch_in_between_never_completes_before_the_one_before_it() -> None:
    slow = output(3, batch=Batch(started_at=START_MS - 50_000, rows=1))
    records = recorded([output(0), slow])
    assert [r.processed_at for r in records] == [at_ms(0), at_ms(0), at_ms(3)]


def test_a_batch_without_a_completion_time_has_the_time_of_its_observation() -> None:
    (first,) = recorded([output(0, processed_at=None)])
    assert first.processed_at == first.observed_at


class TestOfACheckpoint:
    """An observation of the checkpoint has no run, and the time of the poll."""

    def test_records_of_the_checkpoint_precede_those_of_the_driver(self) -> None:
        looked = repeated(1, "checkpoint", run_id=None, origin="checkpoint")
        records = recorded([output(0), looked, output(1), output(2)])
        assert spans(records) == [(0, 0, 0), (0, 1, 1), (0, 2, 2)]
        assert [r.run_id for r in records] == [RUN_ID, None, RUN_ID]

    def test_a_driver_that_repeats_itself_after_it_has_not_gone_back(self) -> None:
        looked = repeated(1, "checkpoint", run_id=None, origin="checkpoint")
        behind = repeated(0, "refresh", observed_at=at_ms(5))
        assert spans(recorded([output(0), looked, behind])) == [(0, 0, 0), (0, 1, 1)]

    def test_a_checkpoint_behind_its_driver_has_not_gone_back(self) -> None:
        looked = repeated(1, run_id=None, origin="checkpoint", observed_at=at_ms(9))
        assert spans(recorded([output(1), output(2), looked, output(3)])) == [
            (0, 1, 1),
            (0, 2, 2),
            (0, 3, 3),
        ]

    def test_a_checkpoint_with_an_earlier_batch_was_set_back(self) -> None:
        looks = [
            repeated(n, run_id=None, origin="checkpoint", observed_at=at_ms(10 + received))
            for received, n in enumerate([4, 5, 2, 3])
        ]
        assert spans(recorded(looks)) == [(0, 4, 4), (0, 5, 5), (1, 2, 2), (1, 3, 3)]

    def test_a_checkpoint_with_fewer_offsets_than_its_driver_changes_nothing(self) -> None:
        looked = repeated(1, run_id=None, origin="checkpoint")
        whole = output(1, source({"orders": {0: 20}}), source({"b": {0: 1}}, source=1))
        assert spans(recorded([output(0), looked, whole])) == [(0, 0, 0), (0, 1, 1)]


def test_the_last_hundred_runs_of_a_query_that_restarts_are_remembered() -> None:
    chain = BatchSequence()
    for n in range(200):
        chain, _ = linked(chain, output(n, run_id=f"run-{n}"))
    assert chain.run_id == "run-199"
    assert chain.past_runs == tuple(f"run-{n}" for n in range(99, 199))
