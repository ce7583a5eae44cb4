"""What of a lag is left to read, and what waits behind an open transaction."""

from __future__ import annotations

import pytest

from sparklag_schemas import LagEvent, OpenTransaction, Settings
from sparklag_service.enrichment.cluster_offsets import NoRecords, OffsetsByCluster, Waiting
from sparklag_service.enrichment.enricher import Enricher
from sparklag_service.enrichment.log_end_history import LatestOffset
from sparklag_service.supervision import Supervisor
from tests.service.asking import nothing_tracked
from tests.service.states import evaluated, moment, offsets_at, only, source, state


def without_records(end: int, *none: NoRecords) -> OffsetsByCluster:
    offsets = offsets_at({0: end})
    offsets["default"]["orders"].without_records["read_uncommitted"] = dict(enumerate(none))
    return offsets


def test_a_lag_of_markers_is_nothing_to_read_and_no_reason_for_an_alarm() -> None:
    event = evaluated(state(), without_records(6, NoRecords(5, 6, 90.0)))
    assert (only(event).lag, only(event).readable_lag, only(event).time_lag_s) == (1, 0, None)
    assert (event.total_lag, event.max_lag, event.max_time_lag_s) == (0, 0, None)
    assert (event.status, event.catch_up_s, event.min_headroom_records) == ("OK", 0.0, None)


@pytest.mark.parametrize(
    ("end", "none"),
    [
        (7, NoRecords(6, 7, 90.0)),  # one record, then a marker
        (6, NoRecords(5, 6, 97.0)),  # it comes and goes
    ],
)
def test_a_lag_with_a_record_counts(end: int, none: NoRecords) -> None:
    event = evaluated(state(), without_records(end, none))
    assert (only(event).lag, only(event).readable_lag) == (end - 5, None)
    assert event.total_lag == end - 5
    assert only(event).time_lag_s is not None


def test_a_record_after_markers_is_as_old_as_itself() -> None:
    offsets = without_records(6, NoRecords(5, 6, 90.0))
    topic = offsets["default"]["orders"]
    times = topic.log_ends["read_uncommitted"]
    times.append(80.0, [LatestOffset(5, 80.0)], 1.0)
    times.append(81.0, [LatestOffset(6, 81.0)], 1.0)
    before = evaluated(state(), offsets, moment(98.0))
    times.append(99.0, [LatestOffset(6, 99.0)], 1.0)
    topic.latest["read_uncommitted"][0] = LatestOffset(7, 100.0)
    event = evaluated(state(), offsets, moment(100.0), before)
    assert (only(event).lag, only(event).readable_lag, event.total_lag) == (2, 1, 1)
    assert event.max_time_lag_s is not None
    assert event.max_time_lag_s < 1.1


async def test_another_instance_goes_on_until_the_log_end_moves() -> None:
    settings = Settings().resolved("localhost:9")
    enricher = Enricher(settings, nothing_tracked(settings), Supervisor())
    before = evaluated(state(), without_records(6, NoRecords(5, 6, 90.0)))
    enricher.adopt(before, moment(101.0))
    topic = enricher.offsets["default"]["orders"]
    for end, total_lag in ((6, 0), (7, 1)):
        topic.latest["read_uncommitted"][0] = LatestOffset(end, 102.0)
        event = evaluated(state(), enricher.offsets, moment(102.0), before)
        assert event.total_lag == total_lag
    assert topic.first_record("read_committed", 0, 5) == 5, "another level gets other records"


def test_a_loss_is_told_until_it_is_read_past_and_its_rest_counts() -> None:
    event = evaluated(state(), offsets_at({0: 70}, {0: 30}))
    assert (event.status, event.total_lag, only(event).lag) == ("DATA_LOSS", 40, 65)
    event = evaluated(state(), offsets_at({0: 70}, {0: 70}), moment(101.0), event)
    assert (event.status, event.total_lag, event.lost_records) == ("DATA_LOSS", 0, 65)
    read_on = state(source({"orders": {0: 70}}))
    event = evaluated(read_on, offsets_at({0: 70}, {0: 70}), moment(102.0), event)
    assert (event.status, event.total_lag, event.lost_records) == ("OK", 0, 0)


COMMITTED = state(source({"orders": {0: 5}}, isolation_level="read_committed"))


def transactional(stable: int, high_watermark: int | None, *waiting: Waiting) -> OffsetsByCluster:
    offsets = offsets_at({0: stable}, level="read_committed", requested_s=400.0)
    if high_watermark is not None:
        offsets = offsets_at({0: high_watermark}, beside=offsets)
    offsets["default"]["orders"].waiting = dict(enumerate(waiting))
    return offsets


def at(now_s: float, offsets: OffsetsByCluster, before: LagEvent | None = None) -> LagEvent:
    return evaluated(COMMITTED, offsets, moment(now_s, requested_s=0.0), before)


def test_an_open_transaction_is_told_and_a_warning_when_it_is_old() -> None:
    event = at(400.0, transactional(5, 70, Waiting(5, 390.0)))
    since = moment(390.0).now_ms
    assert only(event).open_transaction == OpenTransaction(records=65, since=since)
    assert (event.status, event.total_lag) == ("OK", 0)
    event = at(400.0, transactional(5, 70, Waiting(5, 90.0)))
    assert (event.status, event.reason) == (
        "WARN",
        "65 records wait behind a transaction that has been open for 5 min",
    )


@pytest.mark.parametrize(
    "offsets",
    [
        transactional(5, 70, Waiting(5, 391.0)),  # for 9 s
        transactional(5, 70, Waiting(4, 90.0)),  # another one was open
        transactional(5, 5),
        transactional(5, None),
    ],
)
def test_a_short_transaction_is_not_told(offsets: OffsetsByCluster) -> None:
    assert only(at(400.0, offsets)).open_transaction is None


def test_the_next_instance_knows_since_when_it_is_open() -> None:
    before = at(400.0, transactional(5, 70, Waiting(5, 90.0)))
    told = only(before).open_transaction
    event = at(401.0, transactional(5, None), before)
    assert (only(event).open_transaction, event.status) == (told, "WARN"), "not read yet"
    event = at(401.5, {}, event)
    assert (only(event).status, only(event).open_transaction) == ("UNKNOWN", told)
    event = at(402.0, transactional(5, 71, Waiting(5, 402.0)), event)
    assert told is not None
    assert only(event).open_transaction == OpenTransaction(records=66, since=told.since)
    for ended in (transactional(5, 5), transactional(72, 72), transactional(72, 80)):
        assert only(at(403.0, ended, event)).open_transaction is None
