"""The application of `top`: one task polls the service, and screens show what it has read."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, ClassVar, Final

from textual.app import App
from textual.binding import Binding, BindingType
from textual.screen import Screen

from sparklag_schemas import SparklagError, decode_lag_event
from sparklag_schemas.rest_interface import path_segment
from sparklag_schemas.service_access import ServiceAccess
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.cli.requests import ServiceClient
from sparklag_service.cli.top.columns import STEP_S
from sparklag_service.cli.top.screens import FleetScreen, HelpScreen, LiveScreen, QueryScreen
from sparklag_service.cli.top.state import State, read_fleet, read_history
from sparklag_service.cli.top.table import QueryTable

_HISTORIES: Final = 4
"""Concurrent requests for histories."""
_TICK_S: Final = 1.0
"""The interval at which ages are drawn again between two responses."""


class TopApp(App[None]):
    """The application, which polls `service` each `interval_s`."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #alarm { color: ansi_red; text-style: bold; max-height: 6; }
    #totals { max-height: 4; }
    #headings { text-style: bold; text-wrap: nowrap; }
    #title { text-wrap: nowrap; text-overflow: ellipsis; }
    #sentence { min-height: 2; max-height: 6; }
    QueryTable { height: 1fr; scrollbar-size-vertical: 1; overflow-x: hidden; }
    HelpScreen > VerticalScroll { background: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "pause", "Pause"),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "end(130)", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
    ]

    def __init__(self, service: ServiceAccess, interval_s: float) -> None:
        super().__init__(ansi_color=True)  # the terminal's own colours, or none with NO_COLOR
        self.state = State(service.url, interval_s)
        self._service = service
        self._wake = asyncio.Event()

    def get_default_screen(self) -> Screen[None]:
        return FleetScreen(self.state)

    def on_mount(self) -> None:
        self.theme = "ansi-dark"
        self.run_worker(self._poll())
        self.set_interval(_TICK_S, self._show)

    def on_query_table_moved(self) -> None:
        self._wake.set()

    def on_query_table_opened(self, event: QueryTable.Opened) -> None:
        self.push_screen(QueryScreen(self.state, event.summary))
        self._wake.set()

    def action_pause(self) -> None:
        self.state.is_paused = not self.state.is_paused
        if not self.state.is_paused:
            self.state.fleet.outdate_histories()
        self._wake.set()
        self._show()

    def action_help(self) -> None:
        self.push_screen(HelpScreen())

    def action_end(self, return_code: int) -> None:
        self.exit(return_code=return_code)

    @property
    def _front_screen(self) -> Screen[Any] | None:
        """The visible screen. None: the application ends, which closes screens before the poll."""
        return self.screen_stack[-1] if self.screen_stack else None

    def _show(self) -> None:
        screen = self._front_screen
        if isinstance(screen, LiveScreen):
            screen.show(epoch_ms())

    async def _poll(self) -> None:
        """Send all requests one after the other: a slow service has at most one in flight."""
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        async with ServiceClient(self._service) as client:
            while True:
                self._wake.clear()
                is_due = loop.time() >= due_s and not self.state.is_paused
                if is_due:
                    await self._read_fleet(client)
                    self._show()
                    due_s = loop.time() + self.state.interval_s
                await self._read_query(client, is_due=is_due)
                await self._read_histories(client)
                self._show()
                timeout_s = None if self.state.is_paused else max(0.0, due_s - loop.time())
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), timeout_s)

    async def _read_fleet(self, client: ServiceClient) -> None:
        try:
            self.state.fleet.update(await read_fleet(client), epoch_ms())
        except SparklagError as error:
            self.state.fleet.error = str(error)

    async def _read_query(self, client: ServiceClient, *, is_due: bool) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, QueryScreen) and (is_due or screen.event is None):
                path = f"/lag/{path_segment(screen.summary.query_id)}"
                try:
                    screen.event = decode_lag_event(await client.get(path))
                    screen.error = None
                except SparklagError as error:
                    screen.error = str(error)

    async def _read_histories(self, client: ServiceClient) -> None:
        fleet = self.state.fleet
        if fleet.error is not None:
            return
        missing = fleet.without_history(self._visible_ids())
        for first in range(0, len(missing), _HISTORIES):
            chunk = missing[first : first + _HISTORIES]
            reads = (self._read_history(client, query_id) for query_id in chunk)
            if not any(await asyncio.gather(*reads)):
                # A service that hangs costs one timeout; the next poll reports it.
                return

    async def _read_history(self, client: ServiceClient, query_id: str) -> bool:
        try:
            points = await read_history(client, query_id, STEP_S)
        except SparklagError:
            return False
        self.state.fleet.load_history(query_id, points)
        return True

    def _visible_ids(self) -> list[str]:
        screen = self._front_screen
        if isinstance(screen, QueryScreen):
            return [screen.summary.query_id]
        if isinstance(screen, FleetScreen):
            return screen.table.visible_ids
        return []
