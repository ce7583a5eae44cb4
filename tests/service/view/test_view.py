"""The newest lag event of every query, and its summary."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from scripts.message_examples import example_value
from sparklag_schemas import LagEvent, Status, TopicLag, decode_lag_event, encode
from sparklag_schemas.errors import OverLimit
from sparklag_schemas.messages.lag_event import Runs
from sparklag_schemas.settings import LimitSettings
from sparklag_service.view.view import Entry, View, is_forgettable, summary, summary_of_document
from tests.messages import QUERY_ID, lag_event


def test_it_is_the_event_with_the_names_of_its_topics_in_place_of_their_partitions() -> None:
    document = json.loads(json.dumps(example_value(LagEvent)))
    event = decode_lag_event(json.dumps(document).encode())
    names = sorted({topic["topic"] for topic in document["topics"]})
    assert json.loads(summary(event)) == {**document, "topics": names}


def test_it_is_the_same_from_the_document_of_an_older_or_newer_writer() -> None:
    topics = [TopicLag(topic=name, source=0, partitions=[]) for name in ("b", "a", "b")]
    expected = summary(lag_event(topics=topics))
    written = json.dumps(
        {
            "event_id": "e7e7",
            "added_later": {"topics": 1},
            **{k: v for k, v in json.loads(expected).items() if v is not None},
            "topics": [{"topic": name, "source": 0, "partitions": []} for name in "bab"],
        }
    )
    assert summary_of_document(written.encode()) == expected
    assert json.loads(expected)["topics"] == ["a", "b"]


def entry(**fields: Any) -> Entry:
    event = lag_event(**fields)
    return Entry(event, encode(event), event.measured_at, 0, 0)


def view_of(*entries: Entry, limits: LimitSettings | None = None) -> View:
    view = View(limits or LimitSettings())
    for each in entries:
        view.put(each)
    return view


def test_an_older_event_that_comes_late_changes_nothing() -> None:
    view = View()
    assert view.put(entry(measured_at=200))
    assert not view.put(entry(measured_at=100))
    assert not view.put(entry(measured_at=300, observed_at=1))
    assert view.find("orders")[0].event.measured_at == 200


def test_the_same_event_again_is_taken_and_changes_nothing() -> None:
    view = view_of(entry())
    assert view.put(entry())
    assert len(view) == 1


def test_an_id_wins_over_a_name() -> None:
    view = view_of(entry(query_id="a", query="b"), entry(query_id="b", query="c"))
    assert [result.event.query_id for result in view.find("b")] == ["b"]


def result(view: View, wanted: str) -> list[str]:
    return [entry.event.query_id for entry in view.find(wanted)]


def test_a_name_means_the_live_query_and_without_one_the_newest() -> None:
    view = view_of(
        entry(query_id="old", status="STOP", observed_at=1),
        entry(query_id="older", status="FINISHED", observed_at=0),
    )
    assert result(view, "orders") == ["old"]
    view.put(entry(query_id="new", status="STALL", observed_at=0))
    assert result(view, "orders") == ["new"]
    view.put(entry(query_id="copy", observed_at=0))
    assert result(view, "orders") == ["copy", "new"]
    view.put(entry(query_id="new", status="FAILED", observed_at=2))
    view.put(entry(query_id="copy", status="STOP", observed_at=1))
    assert result(view, "orders") == ["new"]


def test_four_characters_select_an_id_if_no_name_is_equal() -> None:
    view = View()
    for query_id in ("dd8b09d1", "dd8b7777", "ee8b"):
        view.put(entry(query_id=query_id, query=None))
    assert result(view, "dd8b") == ["dd8b09d1", "dd8b7777"]
    assert result(view, "dd8b0") == ["dd8b09d1"]
    assert result(view, "ee8") == result(view, "") == []
    view.put(entry(query_id="named", query="dd8b0"))
    assert result(view, "dd8b0") == ["named"]


def runs(first_at_s: int, reported_at_s: int | None = None, **fields: Any) -> Runs:
    first_at, reported_at = first_at_s * 1000, (reported_at_s or first_at_s) * 1000
    return Runs(first_at=first_at, started_at=first_at, reported_at=reported_at, **fields)


REFUNDS = [TopicLag(topic="refunds", source=0, partitions=[])]
DEAD = lag_event(query_id="dead", status="STOP", runs=runs(100, 200))


@pytest.mark.parametrize("status", ["OK", "FAILED", "STOP", "FINISHED"])
def test_one_that_ended_is_followed_by_one_that_began_later(status: str) -> None:
    view = view_of(
        Entry(DEAD, encode(DEAD), 0.0, 0, 0),
        entry(query_id="elsewhere", cluster="west", runs=runs(300)),
        entry(query_id="a folder", run_id=None),
        entry(query_id="other topic", topics=REFUNDS, runs=runs(300)),
        entry(query_id="side by side", runs=runs(150, 400)),
        entry(query_id="restarted", runs=replace(runs(150, 400), started_at=300_000)),
    )
    assert view.successor(DEAD) is None
    view.put(entry(query_id="new", status=status, runs=runs(201)))
    assert view.successor(DEAD) == "new"
    view.put(entry(query_id="newest", runs=runs(300)))
    assert view.successor(DEAD) == "newest"
    assert view.successor(replace(DEAD, status="OK")) is None
    view.remove("newest")
    view.remove("new")
    assert view.successor(DEAD) is None


def test_two_that_ran_side_by_side_are_both_listed_by_name() -> None:
    other = lag_event(query_id="other", status="FAILED", runs=runs(101, 190))
    view = view_of(*(Entry(event, encode(event), 0.0, 0, 0) for event in (DEAD, other)))
    assert [view.successor(event) for event in (DEAD, other)] == [None, None]
    assert [entry.event.query_id for entry in view.named("orders")] == ["dead", "other"]


def test_of_two_that_ran_for_an_instant_side_by_side_one_stays_listed() -> None:
    both = [lag_event(query_id=i, status="STOP", runs=runs(100, 101)) for i in ("a", "b")]
    view = view_of(*(Entry(event, encode(event), 0.0, 0, 0) for event in both))
    assert [view.successor(event) for event in both] == ["b", None]


def test_one_that_is_observed_no_more_is_not_live_and_may_be_followed() -> None:
    view = View()
    closed = replace(DEAD, query_id="closed", status="UNKNOWN", driver_end="closed")
    view.put(Entry(closed, encode(closed), 0.0, 0, 0))
    assert result(view, "orders") == ["closed"]
    assert is_forgettable(closed)
    view.put(entry(query_id="new", runs=runs(201)))
    assert result(view, "orders") == ["new"]
    assert view.successor(closed) == "new"


def test_one_whose_runs_are_overdue_is_not_live() -> None:
    overdue = lag_event(query_id="overdue", status="WARN", runs=runs(100, 200, ended=True))
    view = view_of(Entry(overdue, encode(overdue), 0.0, 0, 0), entry(query_id="live"))
    assert result(view, "orders") == ["live"]
    assert is_forgettable(overdue)


@pytest.mark.parametrize(
    ("status", "reason", "shown"),
    [
        ("OK", None, "last measured 31 s ago"),
        ("STOP", "it died", "last measured 31 s ago; was STOP (it died)"),
        ("UNKNOWN", "no batch", "last measured 31 s ago"),
    ],
)
def test_a_late_event_is_unknown_and_names_the_status_that_it_had(
    status: str, reason: str | None, shown: str
) -> None:
    now_ms = [DEAD.measured_at + 30_000]
    view = View(late_after_s=30, now_ms=lambda: now_ms[0])
    event = lag_event(status=status, reason=reason, catch_up_s=5.0)
    view.put(Entry(event, encode(event), 0.0, 0, 0))
    assert [each.event for each in view] == [event]
    assert view.late() == []
    now_ms[0] += 1_000
    (late,), (found,), ((_, listed),) = view, view.find("orders"), view.listed()
    assert late == found
    assert late.event == listed == decode_lag_event(found.document)
    assert (listed.status, listed.reason, listed.catch_up_s) == ("UNKNOWN", shown, None)
    assert listed.total_lag == event.total_lag
    # What a new owner continues from is what was published.
    assert view.event(QUERY_ID) == event
    assert view.late() == [event]


@pytest.mark.parametrize("fields", [{"query": None}, {"run_id": None}])
def test_one_without_a_name_or_a_driver_is_followed_by_none(fields: dict[str, Any]) -> None:
    view = view_of(entry(query_id="new", runs=runs(201)))
    assert view.successor(replace(DEAD, **fields)) is None


def test_a_nameless_query_is_selected_by_its_id() -> None:
    view = view_of(entry(query=None))
    view.remove("unknown")
    assert len(view.find(QUERY_ID)) == 1
    view.remove(QUERY_ID)
    assert len(view) == 0


def sized(query_id: str, size: int, status: Status = "OK") -> Entry:
    return Entry(lag_event(query_id=query_id, query=None, status=status), b" " * size, 0.0, 0, 0)


def test_beyond_the_limit_a_new_query_is_refused_and_the_known_ones_stay() -> None:
    view = view_of(sized("a", 10), sized("b", 10), limits=LimitSettings(queries=2))
    with pytest.raises(OverLimit, match="2 queries of 0 MB are in the view"):
        view.put(sized("c", 10))
    assert view.put(sized("a", 20))
    assert [known.event.query_id for known in view] == ["a", "b"]
    assert view.size_bytes == 30


def test_those_that_ended_first_give_way_to_a_query_that_lives() -> None:
    view = view_of(
        sized("finished", 10, "FINISHED"),
        sized("stopped", 10, "STOP"),
        sized("lives", 10),
        limits=LimitSettings(queries=3),
    )
    with pytest.raises(OverLimit):
        view.put(sized("ended too", 10, "STOP"))
    view.put(sized("stopped", 10))
    view.put(sized("new", 10))
    assert sorted(known.event.query_id for known in view) == ["lives", "new", "stopped"]
    with pytest.raises(OverLimit):
        view.put(sized("newer", 10))


def test_an_event_that_grows_beyond_the_limit_is_known_without_its_numbers() -> None:
    view = view_of(sized("a", 500_000), sized("b", 500_000), limits=LimitSettings(view_mb=1))
    assert view.put(sized("a", 600_000))
    result = view.get("a")
    assert result is not None
    assert (result.event.status, result.event.topics) == ("UNKNOWN", [])
    assert "600,000 bytes has no room here (limits.view_mb)" in (result.event.reason or "")
    assert decode_lag_event(result.document) == result.event
    assert view.size_bytes == 500_000 + len(result.document)
    view.remove("a")
    view.remove("b")
    assert view.size_bytes == 0
