"""The live stream over real HTTP: a reader's events at the start, on return, and at the end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from sparklag_schemas.settings import LiveSettings
from tests.messages import lag_event
from tests.service.live.live_server import LiveServer, live_server
from tests.waiting import DEADLINE_S, holds

A, B = "query-a", "query-b"


async def test_a_reader_gets_the_newest_documents_and_then_new_ones(live: LiveServer) -> None:
    newest = live.show(lag_event(query_id=A), 3)
    other = live.show(lag_event(query_id=B), 1)
    async with live.reading("/stream") as reader:
        assert "content-type: text/event-stream" in reader.head
        assert "content-length" not in reader.head
        first = await reader.events(2)
        assert [(e.kind, e.data.encode()) for e in first] == [("lag", newest), ("lag", other)]
        comes = live.show(lag_event(query_id=A, measured_at=1_790_000_001_000), 3)
        assert await reader.next() == ("lag", "1:0,3:1", comes.decode())


async def test_a_reader_of_one_query_gets_the_events_of_that_one_only(live: LiveServer) -> None:
    live.show(lag_event(query_id=A, query="orders"), 3)
    live.show(lag_event(query_id=B, query="others"), 3)
    async with live.reading("/lag/orders/stream") as reader:
        first = await reader.next()
        live.show(lag_event(query_id=B, query="others"), 3)
        comes = live.show(lag_event(query_id=A, query="orders", total_lag=3), 3)
        assert first is not None
        assert (first.kind, first.id) == ("lag", "3:0")
        assert await reader.next() == ("lag", "3:3", comes.decode())


async def test_one_that_comes_back_gets_what_it_missed_and_nothing_twice(live: LiveServer) -> None:
    live.show(lag_event(query_id=A), 0)
    live.show(lag_event(query_id=B), 1)
    async with live.reading("/stream") as reader:
        await reader.events(2)
    missed = [
        live.show(lag_event(query_id=A, total_lag=1), 0),
        live.show(lag_event(query_id=B, total_lag=2), 1),
        live.show(lag_event(query_id=A, total_lag=3), 0),
    ]
    async with live.reading("/stream", last_id=reader.last_id) as reader:
        events = await reader.events(3)
        assert [event.data.encode() for event in events] == missed
        assert [event.id for event in events] == ["0:1,1:0", "0:1,1:1", "0:2,1:1"]
        comes = live.show(lag_event(query_id=B, total_lag=4), 1)
        assert await reader.next() == ("lag", "0:2,1:2", comes.decode())
    async with live.reading(f"/lag/{A}/stream", last_id="0:1") as reader:
        assert await reader.next() == ("lag", "0:2", missed[2].decode())


async def test_an_id_is_understood_by_one_that_read_in_another_order(live: LiveServer) -> None:
    async with live_server() as other:
        for server, order in ((live, (0, 1, 0, 1)), (other, (1, 1, 0, 0))):
            for partition in order:
                server.show(lag_event(query_id=f"query-{partition}"), partition)
        async with other.reading("/stream", last_id="0:1,1:0") as reader:
            (events,) = await reader.events(1)
            # The id has the offsets read here by then: they may be behind those of the reader.
            assert (events.id, json.loads(events.data)["query_id"]) == ("1:1", "query-1")
            # The event it has of the other partition came later here, and is not sent again.
            comes = other.show(lag_event(query_id="query-0", total_lag=1), 0)
            assert await reader.next() == ("lag", "0:2,1:1", comes.decode())


async def test_one_who_missed_more_than_is_kept_gets_a_gap_and_the_newest_of_what_changed() -> None:
    async with live_server(live=LiveSettings(resume_mb=1)) as live:
        live.show(lag_event(query_id="unchanged"), 0)
        live.show(lag_event(query_id="gone"), 0)
        async with live.reading("/stream") as reader:
            await reader.events(2)
        live.forget("gone")
        wide = "x" * 100_000
        for lag in range(12):
            live.show(lag_event(query_id=A, reason=wide, total_lag=lag), 0)
        newest = live.show(lag_event(query_id=A, total_lag=12), 0)
        async with live.reading("/stream", last_id=reader.last_id) as reader:
            events = await reader.events(3)
            assert [event.kind for event in events] == ["gap", "forgotten", "lag"]
            assert json.loads(events[0].data)["since"] == "0:1"
            assert json.loads(events[1].data) == {"query_id": "gone"}
            assert (events[2].id, events[2].data.encode()) == ("0:15", newest)
        assert live.pipeline.counters.stream_gaps == 1


async def test_a_reader_of_summaries_always_gets_what_the_listing_has(live: LiveServer) -> None:
    async with httpx.AsyncClient(base_url=live.url, timeout=DEADLINE_S) as http:

        async def listed() -> list[Any]:
            summaries: list[Any] = (await http.get("/lag?superseded=true")).json()["queries"]
            return summaries

        live.show(lag_event(query_id=A, query="a", superseded_by=B), 3)
        live.show(lag_event(query_id=B, query="b"), 1)
        async with live.reading("/stream?summary=true") as reader, live.reading("/stream") as other:
            first = await reader.events(2)
            assert [event.kind for event in first] == ["lag", "lag"]
            assert [json.loads(event.data) for event in first] == await listed()
            document = live.show(lag_event(query_id=A, query="a", total_lag=1), 3)
            (comes,) = await reader.events(1)
            assert (comes.kind, comes.id) == ("lag", "1:0,3:1")
            assert json.loads(comes.data) == (await listed())[0]
            assert [event.data for event in await other.events(3)][2] == document.decode()
        live.show(lag_event(query_id=B, query="b", total_lag=2), 1)
        live.forget(A)
        async with live.reading("/stream?summary=true", last_id=reader.last_id) as reader:
            missed = await reader.events(2)
            assert [event.kind for event in missed] == ["lag", "forgotten"]
            assert json.loads(missed[0].data) == (await listed())[0]
        async with live.reading("/stream?summary=true", last_id="0:99") as reader:
            anew = await reader.events(3)
            assert [event.kind for event in anew] == ["gap", "forgotten", "lag"]
            assert json.loads(anew[2].data) == (await listed())[0]


@pytest.mark.parametrize("last_id", ["0:99", "made up", "9:1"])
async def test_an_id_of_no_place_here_gets_all_that_remains(live: LiveServer, last_id: str) -> None:
    """The ids of another topic, of another program, of another partition."""
    newest = live.show(lag_event(query_id=A), 0)
    async with live.reading(f"/lag/{A}/stream", last_id=last_id) as reader:
        events = await reader.events(2)
        assert [event.kind for event in events] == ["gap", "lag"]
        assert (events[1].id, events[1].data.encode()) == ("0:0", newest)


async def test_a_forgotten_query_is_reported_and_its_own_stream_ends(live: LiveServer) -> None:
    live.show(lag_event(query_id=A))
    async with live.reading("/stream") as everything, live.reading(f"/lag/{A}/stream") as one:
        await everything.next()
        await one.next()
        live.forget(A)
        for reader in (everything, one):
            (events,) = await reader.events(1)
            assert (events.kind, json.loads(events.data)) == ("forgotten", {"query_id": A})
        assert await one.next() is None


async def test_an_empty_service_reports_nothing_and_then_the_first_event(live: LiveServer) -> None:
    async with live.reading("/stream") as reader:
        await holds(lambda: live.hub.reading == 1, "it reads")
        document = live.show(lag_event(query_id=A))
        assert await reader.next() == ("lag", "0:0", document.decode())


async def test_unknown_and_ambiguous_names_are_refused_as_for_the_event(live: LiveServer) -> None:
    live.show(lag_event(query_id=A, query="orders"))
    live.show(lag_event(query_id=B, query="orders"))
    async with httpx.AsyncClient(base_url=live.url, timeout=DEADLINE_S) as http:
        for name, status in (("nothing", 404), ("orders", 409)):
            stream = await http.get(f"/lag/{name}/stream")
            event = await http.get(f"/lag/{name}")
            assert (stream.status_code, stream.json()) == (status, event.json())


async def test_readers_beyond_the_limit_are_refused_until_one_goes() -> None:
    async with (
        live_server(live=LiveSettings(max_readers=1)) as live,
        httpx.AsyncClient(timeout=DEADLINE_S) as http,
    ):
        async with live.reading("/stream"):
            refused = await http.get(f"{live.url}/stream")
            assert refused.status_code == 503
            assert refused.json()["type"].endswith("/too-many-readers")
        await holds(lambda: live.hub.reading == 0, "it is gone before there is an event")
        async with live.reading("/stream") as reader:
            assert reader.status == 200
        counters = live.pipeline.counters
        assert (counters.stream_accepted, counters.stream_refused) == (2, 1)


async def test_a_silent_stream_carries_comments(live: LiveServer) -> None:
    live.hub.keep_alive_s = 0.05
    live.show(lag_event(query_id=B))
    async with live.reading("/stream") as reader:
        await reader.next()
        reading = asyncio.create_task(reader.next())
        await holds(lambda: reader.comments >= 2, "comments come")
        document = live.show(lag_event(query_id=A))
        assert await reading == ("lag", "0:1", document.decode())


async def test_streams_end_at_once_when_the_service_does(
    live: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    live.show(lag_event(query_id=A))
    async with live.reading("/stream") as reader:
        await reader.next()
        live.http.should_exit = True
        assert await reader.next() is None
    assert "Exception in ASGI application" not in caplog.text
