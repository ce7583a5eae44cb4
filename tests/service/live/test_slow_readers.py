"""Readers of the live stream that do not read, or not fast enough: on real sockets."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from sparklag_schemas.settings import LimitSettings, LiveSettings
from tests.messages import lag_event
from tests.service.live.live_server import LiveServer, live_server
from tests.waiting import holds

SMALL_BYTES = 4 * 1024
WIDE = "x" * 20_000


async def fill(live: LiveServer, events: int = 100) -> None:
    """Show more than the connection of a reader that does not read takes."""
    for lag in range(events):
        live.show(lag_event(reason=WIDE, total_lag=lag))
        # The server writes meanwhile, as where events come one by one.
        await asyncio.sleep(0)


async def read_all(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as file:
        return await asyncio.to_thread(file.read)


async def test_one_who_does_not_read_is_cut_off_and_others_get_everything() -> None:
    async with (
        live_server(limits=LimitSettings(response_s=0.3)) as live,
        live.reading("/stream") as reader,
        live.not_reading("/stream", SMALL_BYTES) as idle,
    ):
        await holds(lambda: live.hub.reading == 2, "both read")
        await fill(live)
        output = await reader.events(100)
        assert [event.id for event in output] == [f"0:{offset}" for offset in range(100)]
        await holds(lambda: live.hub.reading == 1, "it is cut off")
        assert live.pipeline.counters.connections_cut_off == 1
        # Nothing of it is left in the server, though it never takes what was written to it.
        assert len(live.http.server_state.connections) == 1
        assert len(live.http.server_state.tasks) == 1
        with pytest.raises(ConnectionResetError):
            await read_all(idle)
        # A stream may last longer than a response.
        live.show(lag_event(total_lag=7))
        await reader.events(1)


async def test_what_the_server_holds_for_one_who_does_not_read_is_bounded(live: LiveServer) -> None:
    async with live.not_reading("/stream", SMALL_BYTES):
        await holds(lambda: live.hub.reading == 1, "it reads")
        (connection,) = live.http.server_state.connections
        transport = connection.transport
        # 400 KB: without a bound the kernel takes 2.8 MB here.
        await fill(live, 20)
        await holds(lambda: transport.get_write_buffer_size() > 0, "the kernel takes no more")
        await fill(live, 600)
        # uvicorn's own 64 KiB, and a chunk with its last frame.
        assert transport.get_write_buffer_size() < 150_000


async def test_the_opening_waits_for_one_who_does_not_read(live: LiveServer) -> None:
    for number in range(3_000):
        live.show(lag_event(query_id=f"q{number}", query=f"q{number}"))
    async with live.not_reading("/stream", SMALL_BYTES):
        await holds(lambda: live.hub.reading == 1, "it reads")
        (connection,) = live.http.server_state.connections
        transport = connection.transport
        await holds(lambda: transport.get_write_buffer_size() > 0, "the kernel takes no more")
        assert transport.get_write_buffer_size() < 64 * 1024


async def test_one_who_falls_behind_what_is_kept_is_cut_off() -> None:
    async with live_server(live=LiveSettings(resume_mb=1)) as live:
        async with live.not_reading("/stream", SMALL_BYTES) as slow:
            await holds(lambda: live.hub.reading == 1, "it reads")
            await fill(live, 300)
            # No write has waited for long: its next event is not kept any more.
            with pytest.raises(ConnectionResetError):
                await read_all(slow)
            await holds(lambda: live.hub.reading == 0, "it is cut off")
            assert live.pipeline.counters.stream_cut_off == 1


@pytest.mark.parametrize("path", ["/stream", "/stream?summary=true"])
async def test_changes_while_thousands_of_events_are_written_come_after_them(path: str) -> None:
    """The changes are more than is kept, and the reader could not have read them yet."""
    async with live_server(live=LiveSettings(resume_mb=1)) as live:
        for query in range(600):
            live.show(lag_event(query_id=f"q{query}", reason=WIDE[:10_000], total_lag=0))
        async with live.reading(path) as reader:
            (connection,) = live.http.server_state.connections
            transport = connection.transport
            await holds(lambda: transport.get_write_buffer_size() > 0, "the kernel takes no more")
            for lag in range(1, 101):
                for query_id in ("q0", "new"):
                    live.show(lag_event(query_id=query_id, reason=WIDE[:10_000], total_lag=lag))
            live.forget("q1")
            shown: dict[str, int | None] = {}
            while shown.get("new") != 100 or "q1" in shown or len(shown) < 600:
                (event,) = await reader.events(1)
                message = json.loads(event.data)
                if event.kind == "forgotten":
                    shown.pop(message["query_id"], None)
                else:
                    shown[message["query_id"]] = message["total_lag"]
            live.show(lag_event(query_id="q2", reason=WIDE[:10_000], total_lag=7))
            (last,) = await reader.events(1)
            assert (json.loads(last.data)["query_id"], last.id) == ("q2", "0:801")
        assert shown.pop("q0") == shown.pop("new") == 100
        assert set(shown.values()) == {0}
        assert live.pipeline.counters.stream_cut_off == 0


async def test_one_who_does_not_read_does_not_hold_up_the_end(live: LiveServer) -> None:
    async with live.not_reading("/stream", SMALL_BYTES):
        await holds(lambda: live.hub.reading == 1, "it reads")
        await fill(live)
        (connection,) = live.http.server_state.connections
        transport = connection.transport
        await holds(lambda: transport.get_write_buffer_size() > 0, "the kernel takes no more")
        live.http.should_exit = True
        await holds(lambda: not live.http.server_state.connections, "it has ended")
        assert live.pipeline.counters.stream_cut_off == 0
