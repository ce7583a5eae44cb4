"""The view keeps the newest event of each query, whatever order they come in."""

from __future__ import annotations

from typing import Any

from sparklag_schemas import encode
from sparklag_service.view import Entry, View
from tests.messages import QUERY_ID, lag_event


def entry(**fields: Any) -> Entry:
    event = lag_event(**fields)
    return Entry(event, encode(event), event.measured_at)


def test_a_query_is_found_by_id_and_by_name() -> None:
    view = View()
    view.put(entry())
    assert view.find(QUERY_ID) == view.find("orders") == [view.get(QUERY_ID)]
    assert view.find("other") == []


def test_an_older_event_that_comes_late_changes_nothing() -> None:
    view = View()
    assert view.put(entry(measured_at=200))
    assert not view.put(entry(measured_at=100))
    assert not view.put(entry(measured_at=300, observed_at=1))
    assert view.find("orders")[0].event.measured_at == 200


def test_the_same_event_again_is_taken_and_changes_nothing() -> None:
    view = View()
    view.put(entry())
    assert view.put(entry())
    assert len(view) == 1


def test_a_renamed_query_is_found_by_its_new_name_only() -> None:
    view = View()
    view.put(entry(query="old"))
    view.put(entry(query="new", measured_at=1_790_000_000_251))
    assert view.find("old") == []
    assert len(view.find("new")) == 1


def test_two_queries_of_one_name_are_both_found() -> None:
    view = View()
    view.put(entry(query_id="b"))
    view.put(entry(query_id="a"))
    assert [found.event.query_id for found in view.find("orders")] == ["a", "b"]
    view.remove("a")
    assert [found.event.query_id for found in view.find("orders")] == ["b"]


def test_an_id_wins_over_a_name() -> None:
    view = View()
    view.put(entry(query_id="a", query="b"))
    view.put(entry(query_id="b", query="c"))
    assert [found.event.query_id for found in view.find("b")] == ["b"]


def test_a_nameless_query_is_found_by_its_id() -> None:
    view = View()
    view.put(entry(query=None))
    view.remove("unknown")
    assert len(view.find(QUERY_ID)) == 1
    view.remove(QUERY_ID)
    assert len(view) == 0
