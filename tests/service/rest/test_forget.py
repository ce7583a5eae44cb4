"""`DELETE /lag/{query}` without Kafka: what is refused, and to whom."""

from __future__ import annotations

from typing import Any

import pytest

from sparklag_schemas import LagEvent, Settings, encode
from sparklag_service.instance_state import InstanceState
from sparklag_service.view.view import Entry
from tests.messages import lag_event
from tests.service.pipelines import complete_pipeline_of
from tests.service.rest_client import rest_client

DEAD = lag_event(query_id="dead-1", status="STOP")
EVENTS = (
    DEAD,
    lag_event(query_id="dead-2", query="a/b", status="FAILED"),
    lag_event(query_id="closed", status="UNKNOWN", driver_end="closed"),
    lag_event(query_id="lives", query="returns", status="STALL"),
    lag_event(query_id="no folder", query=None, run_id=None, origin="checkpoint", status="UNKNOWN"),
    lag_event(query_id="folder", query=None, run_id=None, origin="checkpoint", status="STOP"),
    lag_event(query_id="refused", query=None, status="UNKNOWN"),
    lag_event(query_id="group:a:b-c", query=None, run_id=None, origin="group", status="UNKNOWN"),
)


class Forgetting(InstanceState):
    """A pipeline whose Kafka is a fake: it acknowledges every tombstone, or none."""

    def __init__(self, *, acknowledges: bool = True, **settings: Any) -> None:
        super().__init__(complete_pipeline_of(Settings(**settings)))
        self.forgotten: list[str] = []
        self._acknowledges = acknowledges
        self.forget = self._forget
        for event in EVENTS:
            self.view.put(Entry(event, encode(event), 0.0, 0, 0))

    async def _forget(self, event: LagEvent) -> bool:
        self.forgotten.append(event.query_id)
        return self._acknowledges


@pytest.mark.parametrize(
    ("wanted", "forgotten"),
    [("dead-1", "dead-1"), ("dead-2", "dead-2"), ("clos", "closed"), ("no f", "no folder")],
)
async def test_one_that_nothing_speaks_of_is_forgotten_by_its_id_or_the_beginning_of_that(
    wanted: str, forgotten: str
) -> None:
    state = Forgetting()
    async with rest_client(state) as http:
        answer = await http.delete(f"/lag/{wanted}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert state.forgotten == [forgotten]


@pytest.mark.parametrize(
    ("wanted", "status", "kind", "query_ids"),
    [
        ("lives", 409, "query-is-live", None),
        ("folder", 409, "query-is-live", None),
        ("refused", 409, "query-is-live", None),
        ("dead", 409, "ambiguous-query-name", ["dead-1", "dead-2"]),
        ("a%2Fb", 409, "id-needed", ["dead-2"]),
        ("nothing", 404, "unknown-query", None),
        ("group:a:b", 404, "unknown-query", None),
    ],
)
async def test_what_is_not_forgotten_is_a_problem_document(
    wanted: str, status: int, kind: str, query_ids: list[str] | None
) -> None:
    state = Forgetting()
    async with rest_client(state) as http:
        problem = (await http.delete(f"/lag/{wanted}")).json()
    assert problem["status"] == status
    assert problem["type"] == f"tag:sparklag,2026:problem/{kind}"
    assert problem.get("query_ids") == query_ids
    assert state.forgotten == []


async def test_a_tombstone_that_is_not_acknowledged_is_no_success() -> None:
    async with rest_client(Forgetting(acknowledges=False)) as http:
        answer = await http.delete("/lag/dead-1")
    assert (answer.status_code, answer.json()["type"][-11:]) == (503, "/kafka-away")


@pytest.mark.parametrize(
    ("http_forget", "address", "headers", "status"),
    [
        ("loopback", "127.0.0.1", {}, 204),
        ("loopback", "::1", {}, 204),
        ("loopback", "::ffff:127.0.0.1", {}, 204),
        ("loopback", "127.0.0.1", {"origin": "http://localhost", "sec-fetch-site": "same"}, 204),
        ("loopback", "10.1.2.3", {}, 403),
        # Istio's proxy, for somebody elsewhere.
        ("loopback", "127.0.0.6", {}, 403),
        *(
            ("loopback", address, {name: "127.0.0.1"}, 403)
            for address in ("127.0.0.1", "::1")
            for name in (
                *("x-forwarded-for", "via", "x-real-ip", "forwarded", "x-envoy-internal"),
                *("x-request-id", "cf-connecting-ip", "true-client-ip", "l5d-client-id", "x-b3"),
            )
        ),
        ("anywhere", "10.1.2.3", {}, 204),
        ("off", "127.0.0.1", {}, 403),
    ],
)
async def test_the_setting_reports_from_where_it_is_taken(
    http_forget: str, address: str, headers: dict[str, str], status: int
) -> None:
    async with rest_client(Forgetting(http_forget=http_forget), address) as http:
        answer = await http.delete("/lag/dead-1", headers=headers)
    assert answer.status_code == status
    assert status == 204 or answer.json()["type"].endswith("/forget-not-allowed")


async def test_a_page_of_others_gets_no_leave_to_send_it() -> None:
    """A browser asks before a DELETE to another origin, and sends it only with leave."""
    asks = {"origin": "http://attacker.example", "access-control-request-method": "DELETE"}
    async with rest_client(Forgetting()) as http:
        answer = await http.options("/lag/dead-1", headers=asks)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "DELETE, GET, HEAD"
    assert not [name for name in answer.headers if name.startswith("access-control-")]
