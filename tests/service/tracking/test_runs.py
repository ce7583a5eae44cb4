"""The runs of a query: one that is overdue, across a hand-over too; runs that do not recur."""

from __future__ import annotations

from typing import Any

import pytest

from sparklag_schemas import LagEvent, Observation, decode_lag_event, encode
from sparklag_schemas.messages.query_names import is_live
from sparklag_service.tracking.query_state import QueryState
from tests.messages import QUERY_ID, observation
from tests.service.states import States, evaluated, moment, offsets_at

EPOCH_MS = moment(0).now_ms


def run(number: int, *, ended: bool = True, **end: Any) -> list[Observation]:
    """A run of 10 s, one each minute."""
    at_ms = EPOCH_MS + number * 60_000
    fields: dict[str, Any] = {"run_id": f"run {number}", "ends_by_itself": True}
    messages = [observation(cause="started", observed_at=at_ms, **fields)]
    if ended:
        terminated = {"cause": "terminated", "observed_at": at_ms + 10_000, **fields, **end}
        messages.append(observation(**terminated))
    return messages


def after(*messages: Observation) -> QueryState:
    states = States()
    for offset, message in enumerate(messages):
        states.observe(message, offset=offset)
    return states.queries[QUERY_ID]


def measured(state: QueryState, at_s: float, previous: LagEvent | None = None) -> LagEvent:
    return evaluated(state, offsets_at({0: 30_005}, requested_s=at_s), moment(at_s), previous)


THREE = [*run(0), *run(1), *run(2)]


def test_a_query_that_ran_each_minute_and_stays_away_is_warned_of() -> None:
    state = after(*THREE)
    assert measured(state, 130 + 149).status == "FINISHED"
    overdue = measured(state, 130 + 300)
    assert (overdue.status, overdue.reason) == (
        "WARN",
        "has not run for 5 min, usually every 60 s; lag is 30,000 records",
    )
    assert not is_live(overdue)
    assert (overdue.catch_up_reason, overdue.activity) == ("the query is not running", None)


def test_a_new_owner_goes_on_from_the_runs_in_the_event() -> None:
    before = decode_lag_event(encode(measured(after(*THREE), 130 + 20)))
    states = States()
    states.adopt(before)
    assert measured(states.queries[QUERY_ID], 130 + 300, before).status == "WARN"
    states.observe(run(7, ended=False)[0], offset=9)
    assert measured(states.queries[QUERY_ID], 130 + 301, before).status != "WARN"


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([*run(0), *run(1)], id="two runs"),
        pytest.param(
            [*run(0), *run(1), *run(2, driver_end="stopped")], id="its driver was stopped"
        ),
        pytest.param(
            [m for n in range(3) for m in run(n, ends_by_itself=False)], id="somebody stopped it"
        ),
    ],
)
def test_runs_that_do_not_recur_are_finished_whatever_their_lag(
    messages: list[Observation],
) -> None:
    assert measured(after(*messages), 3_600).status == "FINISHED"


def test_failures_are_counted_across_runs_and_hand_overs() -> None:
    messages = [*run(0, exception="boom"), *run(1, exception="boom")]
    event = decode_lag_event(encode(measured(after(*messages), 130)))
    assert (event.status, event.runs and event.runs.failed) == ("FAILED", 2)
    states = States()
    states.adopt(event)
    for message in run(2, exception="boom"):
        states.observe(message, offset=9)
    runs = states.queries[QUERY_ID].runs
    assert runs is not None
    assert runs.failed == 3
    assert runs.first_at == EPOCH_MS
