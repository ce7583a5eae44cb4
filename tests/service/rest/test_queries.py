"""Listing: paging misses no query and shows none twice."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparklag_schemas import LagEvent
from sparklag_service.rest import queries
from sparklag_service.rest.queries import CURSOR, Filter
from sparklag_service.view.view import Entry, View
from tests.messages import lag_event

EVENTS = [
    lag_event(query_id=f"id-{number:02}", query=name, status=status, cluster=cluster)
    for number, (name, status, cluster) in enumerate(
        [
            ("b", "OK", "east"),
            ("a", "FAILED", "west"),
            (None, "OK", "east"),
            ("a", "OK", "east"),
            ("c", "UNKNOWN", "west"),
        ]
    )
]


def page(
    events: Iterable[LagEvent], wanted: Filter, limit: int, cursor: str | None
) -> tuple[list[dict[str, Any]], str | None]:
    view = View()
    for event in events:
        view.put(Entry(event, b"", 0.0, 0, 0))
    result = queries.page(view, wanted, limit, cursor)
    return [msgspec.json.decode(query) for query in result.queries], result.next_cursor


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 9])
def test_all_pages_together_are_every_query_once_in_order(limit: int) -> None:
    received: list[object] = []
    cursor = None
    while True:
        queries, cursor = page(EVENTS, Filter(), limit, cursor)
        received += [query["query_id"] for query in queries]
        if cursor is None:
            break
    assert received == ["id-02", "id-01", "id-03", "id-00", "id-04"]


def test_filters_are_all_kept() -> None:
    queries, _ = page(EVENTS, Filter(status="OK", cluster="east", topic="orders"), 10, None)
    assert [query["query_id"] for query in queries] == ["id-02", "id-03", "id-00"]
    assert page(EVENTS, Filter(topic="other"), 10, None) == ([], None)


def test_a_query_that_is_named_anew_or_forgotten_is_listed_once_or_not() -> None:
    view = View()
    for number, event in enumerate((*EVENTS, *EVENTS)):
        renamed = replace(event, query="z", measured_at=event.measured_at + 1)
        view.put(Entry(renamed if number > 6 else event, b"", 0.0, 0, 0))
    view.remove("id-04")
    shown = queries.page(view, Filter(), 9, None).queries
    ids = [msgspec.json.decode(query)["query_id"] for query in shown]
    assert ids == ["id-01", "id-00", "id-02", "id-03"]


@given(st.from_regex(CURSOR, fullmatch=True))
def test_each_cursor_is_a_place_in_the_order(cursor: str) -> None:
    listed, _ = page(EVENTS, Filter(), 9, None)
    result, _ = page(EVENTS, Filter(), 9, cursor)
    assert result == listed[len(listed) - len(result) :]


@pytest.mark.parametrize("cursor", ["x", "e30=", "\x00", "a b", "abcde"])
def test_what_is_no_cursor_does_not_match(cursor: str) -> None:
    assert re.match(CURSOR, cursor) is None
