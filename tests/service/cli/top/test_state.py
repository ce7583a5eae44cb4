"""The lines above the table of `top`: totals, age, and that the service does not answer."""

from __future__ import annotations

import pytest

from sparklag_service.cli.top.state import Fleet, LagPoint, State, sentence
from tests.service.cli.top.summaries import NOW_MS, page, summary

URL = "http://user:secret@broker:8085"


@pytest.fixture
def state() -> State:
    return State(URL, 2.0)


def test_before_the_first_response_nothing_is_counted(state: State) -> None:
    assert state.totals().plain == "no response yet"
    assert state.placeholder() == "waiting for http://user:***@broker:8085"


def test_the_totals_are_of_all_queries_the_worst_status_first(state: State) -> None:
    queries = [
        summary("a", total_lag=1_000),
        summary("b", total_lag=234, status="WARN", max_time_lag_s=90.0),
        summary("c", total_lag=None, max_time_lag_s=None, status="STALL"),
        summary("d", total_lag=0, max_time_lag_s=None),
    ]
    state.fleet.update(page(*queries), NOW_MS)
    assert state.totals().plain == (
        "4 queries  1 STALL  1 WARN  2 OK\n1,234 records behind, 1 unknown  time lag 90 s"
    )


def test_totals_that_are_not_known_are_not_zero(state: State) -> None:
    state.fleet.update(page(summary(total_lag=None, max_time_lag_s=None)), NOW_MS)
    assert "unknown records behind, 1 unknown" in state.totals().plain
    assert "time lag unknown" in state.totals().plain


def test_without_lag_there_is_no_oldest_record(state: State) -> None:
    state.fleet.update(page(summary(total_lag=0, max_time_lag_s=None)), NOW_MS)
    assert state.totals().plain == "1 query  1 OK\n0 records behind"


def test_a_service_that_goes_away_is_reported_with_the_age_of_what_stays(state: State) -> None:
    state.fleet.update(page(summary()), NOW_MS)
    assert state.alarm(NOW_MS) == ""
    state.fleet.error = "no service\nat all"
    alarm = state.alarm(NOW_MS + 30_000)
    assert alarm == "NO ANSWER, shown as of 30 s ago: no service\\nat all"
    assert state.listed() == [summary()]
    state.fleet.update(page(), NOW_MS)
    assert state.alarm(NOW_MS) == ""


def test_the_title_has_the_order_and_what_the_filter_matches_but_no_secret(state: State) -> None:
    state.fleet.update(page(summary("a"), summary("b")), NOW_MS)
    state.order, state.is_reversed, state.text = "lag", True, "a\x1b"
    title = state.title(NOW_MS + 3_000, 1).plain
    assert "read 3 s ago" in title
    assert "sort: lag, reversed" in title
    assert "filter a\\x1b: 1 of 2" in title
    assert "secret" not in title


@pytest.mark.parametrize("text", ["PAY", "id-of-pay", "stall", "no batch", "clicks"])
def test_the_filter_looks_into_names_ids_statuses_reasons_and_topics(
    state: State, text: str
) -> None:
    payments = summary("payments", status="STALL", reason="no batch for 5 min")
    other = summary("other", topics=["views"])
    state.fleet.update(page(other, payments), NOW_MS)
    state.text = text
    assert state.listed() == [payments]


def test_every_order_follows_the_one_before(state: State) -> None:
    orders = [state.order]
    for _ in range(7):
        state.next_order()
        orders.append(state.order)
    assert orders[0] == orders[-1] == "worst"
    assert len(set(orders)) == 7


def test_the_sentence_of_a_query_is_on_one_line_whatever_is_in_it() -> None:
    query = summary("a\nb", status="WARN", reason="c\x1b[2J")
    assert sentence(query, NOW_MS) == "a\\nb: WARN: c\\x1b[2J"


def test_a_history_is_read_once_and_again_after_a_time_without_answers() -> None:
    fleet = Fleet()
    fleet.update(page(summary("a")), NOW_MS)
    assert fleet.without_history(["id-of-a", "unknown"]) == ["id-of-a"]
    fleet.load_history("id-of-a", [LagPoint(measured_at=NOW_MS - 60_000, max_total_lag=130)])
    assert fleet.without_history(["id-of-a"]) == []
    assert fleet.history("id-of-a").sparkline(NOW_MS, 3) == " █▅"
    fleet.error = "away"
    fleet.update(page(summary("a")), NOW_MS)
    assert fleet.without_history(["id-of-a"]) == ["id-of-a"]
