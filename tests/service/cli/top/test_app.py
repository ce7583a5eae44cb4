"""`sparklag top`, its command and its application."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from textual.pilot import Pilot
from werkzeug import Request, Response

from sparklag_jobs.broker.child_process import free_port
from sparklag_schemas import LagEvent, PartitionLag, TopicLag
from sparklag_schemas.service_access import ServiceAccess
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.cli.top.app import TopApp
from sparklag_service.cli.top.state import LagPage
from tests.commands import run, succeed
from tests.http_server import JSON, HttpServer
from tests.messages import lag_event
from tests.service.cli.test_cli import refused, sparklag
from tests.service.cli.top.summaries import page, summary
from tests.service.live.live_server import LiveServer
from tests.service.test_hostile_names import HOSTILE, hostile_event, is_harmless
from tests.waiting import holds

WITHOUT_TEXTUAL = """
import sys
sys.modules["textual"] = None  # as where it is not installed
sys.argv = ["sparklag", "top"]
from sparklag_service.cli import run
run()
"""
LOADED = "import sys, sparklag_service.cli; print(sorted({*sys.modules} & {'textual'}))"


def test_without_the_extra_one_line_names_it() -> None:
    assert refused(run(sys.executable, "-c", WITHOUT_TEXTUAL)) == (
        "sparklag: top needs textual:"
        " pip install 'sparklag[top]' (beside a clone: pip install './sparklag[top]')"
    )


def test_in_a_pipe_one_line_names_the_command_to_use() -> None:
    assert refused(sparklag("top")) == (
        "sparklag: top needs a terminal: use `sparklag queries` where there is none"
    )


def test_no_other_command_loads_textual() -> None:
    assert succeed(sys.executable, "-c", LOADED) == "[]\n"


EIGHTY = (80, 24)
WIDE = (200, 30)
_QUICK_KINDS = ("erases the screen", "NUL", "markup", "written from the right")


class Top:
    def __init__(self, app: TopApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def lines(self) -> list[str]:
        strips = self.app.screen._compositor.render_strips(self.app.size)
        return [strip.text.rstrip() for strip in strips]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def age_s(self) -> int:
        shown = re.search(r"read (\d+) s ago", self.text)
        assert shown is not None
        return int(shown[1])

    def row(self, name: str) -> int:
        return next(number for number, line in enumerate(self.lines) if f" {name} " in line)

    async def shows(self, *texts: str) -> None:
        await self.when(lambda: all(text in self.text for text in texts), f"it shows {texts}")

    async def hides(self, text: str) -> None:
        await self.when(lambda: text not in self.text, f"it does not show {text}")

    async def when(self, condition: Callable[[], bool], what: str) -> None:
        try:
            await holds(condition, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text}") from None

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)


@asynccontextmanager
async def top(
    url: str, size: tuple[int, int] = EIGHTY, interval_s: float = 0.5
) -> AsyncIterator[Top]:
    app = TopApp(ServiceAccess(url), interval_s)
    async with app.run_test(size=size) as pilot:
        yield Top(app, pilot)


def event(name: str, **fields: Any) -> LagEvent:
    now_ms = epoch_ms()
    return lag_event(
        **{"query_id": f"id-of-{name}", "query": name, "observed_at": now_ms, "measured_at": now_ms}
        | fields
    )


STALLED = {
    "status": "STALL",
    "reason": "no batch has been completed for 12 min, usually one a second",
}


@pytest.fixture
async def fleet(live: LiveServer) -> LiveServer:
    live.show(event("clicks", total_lag=7_000))
    live.show(event("orders", status="WARN", reason="the lag grows", total_lag=300))
    live.show(event("payments", **STALLED, total_lag=1_234_567))
    return live


async def test_the_worst_query_is_on_top_and_its_reason_is_shown_in_full(fleet: LiveServer) -> None:
    async with top(fleet.url) as screen:
        await screen.shows("3 queries  1 STALL  1 WARN  1 OK", "1,241,867 records behind", "clicks")
        rows = [screen.row(name) for name in ("payments", "orders", "clicks")]
        assert rows == sorted(rows)
        assert screen.lines[rows[0]].startswith(">!! payments")
        assert screen.lines[rows[1]].startswith("  ! orders")
        assert "1,234,567" in screen.lines[rows[0]]
        assert STALLED["reason"] in " ".join(screen.text.split())


async def test_arrows_and_j_and_k_select(fleet: LiveServer) -> None:
    async with top(fleet.url) as screen:
        await screen.shows("payments")
        for keys, name in (
            (["j"], "orders"),
            (["down"], "clicks"),
            (["k"], "orders"),
            (["up", "up"], "payments"),
            (["G"], "clicks"),
            (["g"], "payments"),
        ):
            await screen.press(*keys)
            await screen.when(
                lambda name=name: screen.lines[screen.row(name)].startswith(">"),  # type: ignore[misc]  # mypy infers no default
                f"{name} is selected",
            )


async def test_the_selection_stays_on_its_query_when_the_order_changes(fleet: LiveServer) -> None:
    async with top(fleet.url) as screen:
        await screen.shows("payments")
        await screen.press("down")
        fleet.show(event("orders", status="FAILED", total_lag=None))
        await screen.shows("1 FAILED")
        assert screen.row("orders") < screen.row("payments")
        assert screen.lines[screen.row("orders")].startswith(">!!")


async def test_a_click_selects_a_query_and_another_opens_it(fleet: LiveServer) -> None:
    async with top(fleet.url) as screen:
        await screen.shows("orders", "records behind")
        for _ in range(2):
            await screen.pilot.click(offset=(10, screen.row("orders")))
        await screen.shows("esc Back", "the lag grows")


async def test_enter_opens_a_query_with_its_partitions_the_worst_first(live: LiveServer) -> None:
    lags = {0: 10, 1: None, 2: 5_000}
    live.show(
        event(
            "payments",
            **STALLED,
            total_lag=5_010,
            topics=[
                TopicLag(
                    topic="bills",
                    source=0,
                    partitions=[PartitionLag(partition=p, lag=lag) for p, lag in lags.items()],
                )
            ],
        )
    )
    async with top(live.url) as screen:
        await screen.shows("payments")
        await screen.press("enter")
        await screen.shows("5,010 records", "lag in the last hour, up to 5,010", "partition", "█")
        partitions = [line.split()[1] for line in screen.lines if line.startswith("bills")]
        assert partitions == ["1", "2", "0"]
        await screen.press("escape")
        await screen.shows("1 query")


async def test_a_query_that_is_forgotten_meanwhile_reports_so(fleet: LiveServer) -> None:
    async with top(fleet.url) as screen:
        await screen.shows("payments")
        await screen.press("enter")
        await screen.shows("last hour")
        fleet.forget("id-of-payments")
        await screen.shows("NO NEW NUMBERS: ", "no query has")


async def test_the_trend_is_read_from_the_history_of_the_service(live: LiveServer) -> None:
    now_ms = epoch_ms()
    for minutes, lag in ((3, 50), (2, 100), (1, 0)):
        at_ms = now_ms - minutes * 60_000
        live.show(event("orders", total_lag=lag, observed_at=at_ms, measured_at=at_ms))
    live.show(event("orders", total_lag=100))
    async with top(live.url) as screen:
        await screen.shows("▅█▁█")


async def test_a_filter_is_typed_kept_and_cleared(fleet: LiveServer) -> None:
    async with top(fleet.url) as screen:
        await screen.shows("payments")
        await screen.press("slash", *"grows")
        await screen.hides("payments")
        assert "1 of 3" in screen.text
        await screen.press("enter", "slash", *"q?")
        await screen.shows("no query like this")
        await screen.press("escape")
        await screen.shows("payments", "orders", "clicks")


async def test_s_sorts_by_the_next_column_and_r_reverses(fleet: LiveServer) -> None:
    async with top(fleet.url) as screen:
        await screen.shows("payments")
        await screen.press("s")
        await screen.shows("sort: lag")
        assert screen.row("payments") < screen.row("clicks") < screen.row("orders")
        await screen.press("r")
        await screen.shows("sort: lag, reversed")
        assert screen.row("payments") > screen.row("clicks") > screen.row("orders")


async def test_p_keeps_the_numbers_until_it_is_pressed_again(fleet: LiveServer) -> None:
    async with top(fleet.url) as screen:
        await screen.shows("payments")
        await screen.press("p")
        await screen.shows("PAUSED")
        fleet.show(event("later"))
        await screen.when(lambda: screen.age_s >= 2, "an interval has passed, and more")
        assert "later" not in screen.text
        await screen.press("p")
        await screen.shows("later")
        await screen.hides("PAUSED")


async def test_the_help_explains_keys_and_columns_within_eighty_columns(fleet: LiveServer) -> None:
    async with top(fleet.url) as screen:
        await screen.shows("payments")
        await screen.press("question_mark")
        await screen.shows("select a query", "last measured  when the latest offsets were read")
        await screen.press("escape")
        await screen.shows("payments")


@pytest.mark.parametrize(
    "name",
    [
        # An application for each takes most of a second.
        pytest.param(name, id=kind, marks=[pytest.mark.slow] if kind not in _QUICK_KINDS else [])
        for kind, name in HOSTILE.items()
    ],
)
async def test_nothing_that_others_wrote_is_obeyed(live: LiveServer, name: str) -> None:
    live.show(replace(hostile_event(name), superseded_by=None))
    async with top(live.url, WIDE) as screen:
        await screen.shows("1 query")
        assert is_harmless(screen.text)
        await screen.press("enter")
        # No request may have a NUL in it.
        await screen.shows("esc Back", "NO NEW NUMBERS" if "\0" in name else "last hour")
        assert is_harmless(screen.text)
        if len(name) < 50 and name.isprintable():
            assert name in screen.text


async def test_a_thousand_queries_are_read_and_scrolled_through(live: LiveServer) -> None:
    # The loop must stay free meanwhile: `unblocked_loop` fails this test where it is not.
    for number in range(1_000):
        live.show(event(f"query-{number:03d}"))
    async with top(live.url) as screen:
        await screen.shows("1,000 queries", "query-000")
        await screen.press("G")
        await screen.shows("query-999")
        await screen.press("g")
        await screen.shows("query-000")


class FakeService:
    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.page: LagPage | None = page(summary("payments", measured_at=epoch_ms()))

    def serving(self) -> HttpServer:
        return HttpServer(self._respond, self.port)

    def _respond(self, request: Request) -> Response:
        if request.path == "/lag" and self.page is not None:
            return Response(msgspec.json.encode(self.page), content_type=JSON)
        return Response("<h1>oops</h1>", 500, content_type="text/html")


@pytest.fixture
def fake() -> FakeService:
    return FakeService()


async def test_rows_of_a_service_that_goes_away_stay_until_it_is_back(fake: FakeService) -> None:
    async with top(fake.url) as screen:
        await screen.shows("NO ANSWER: no service at", "no response yet")
        with fake.serving():
            await screen.shows("payments", "1 query")
            await screen.hides("NO ANSWER")
        await screen.shows("NO ANSWER, shown as of", "payments")
        with fake.serving():
            await screen.hides("NO ANSWER")


async def test_what_is_no_list_of_queries_is_reported(fake: FakeService) -> None:
    fake.page = None
    with fake.serving():
        async with top(fake.url) as screen:
            await screen.shows("NO ANSWER", "status 500: is this a sparklag service?")


async def test_a_service_that_is_not_ready_reports_why_until_it_is(fake: FakeService) -> None:
    fake.page = page(summary("payments"), failing={"topics": "Kafka: connection [red]refused"})
    with fake.serving():
        async with top(fake.url) as screen:
            await screen.shows("SERVICE NOT READY: topics: Kafka: connection [red]refused")
            fake.page = page(summary("payments"))
            await screen.hides("SERVICE NOT READY")
