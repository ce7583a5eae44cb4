"""The newest lag event of every query, and its summary."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scripts.message_examples import example_value
from sparklag_schemas import LagEvent, Status, TopicLag, decode_lag_event, encode
from sparklag_schemas.errors import OverLimit
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


def test_a_query_is_selected_by_id_and_by_name() -> None:
    view = view_of(entry())
    assert view.find(QUERY_ID) == view.find("orders") == [view.get(QUERY_ID)]
    assert view.find("other") == []


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


def test_one_that_ended_is_followed_by_the_one_that_its_name_means_now() -> None:
    view = View()
    old, lives = lag_event(query_id="old", status="STOP"), lag_event(query_id="old")
    assert view.successor(old) is None
    view.put(Entry(old, encode(old), 0.0, 0, 0))
    view.put(entry(query_id="elsewhere", cluster="west"))
    view.put(entry(query_id="a folder", run_id=None))
    view.put(entry(query_id="before", status="STOP", observed_at=old.observed_at - 1))
    assert view.successor(old) is None
    view.put(entry(query_id="new", status="FAILED", observed_at=old.observed_at + 1))
    assert view.successor(old) == "new"
    view.put(entry(query_id="newest", observed_at=0))
    assert view.successor(old) == "newest"
    assert view.successor(lives) is None
    view.remove("newest")
    view.remove("new")
    assert view.successor(old) is None


def test_one_that_is_observed_no_more_is_not_live_and_may_be_followed() -> None:
    view = View()
    closed = lag_event(query_id="closed", status="UNKNOWN", driver_end="closed")
    view.put(Entry(closed, encode(closed), 0.0, 0, 0))
    assert result(view, "orders") == ["closed"]
    assert is_forgettable(closed)
    view.put(entry(query_id="new"))
    assert result(view, "orders") == ["new"]
    assert view.successor(closed) == "new"
    view.put(entry(query_id="new", status="STOP", observed_at=closed.observed_at + 1))
    assert view.successor(closed) == "new"


@pytest.mark.parametrize("fields", [{"query": None}, {"run_id": None}])
def test_one_without_a_name_or_a_driver_is_followed_by_none(fields: dict[str, Any]) -> None:
    view = view_of(entry(query_id="new"))
    assert view.successor(lag_event(query_id="old", status="STOP", **fields)) is None


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
