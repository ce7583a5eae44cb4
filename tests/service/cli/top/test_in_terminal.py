"""`sparklag top` and `lag --watch` as a person sees them: in tmux, on a real service and broker."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx
import pytest

from sparklag_schemas.timestamps import epoch_ms
from tests.debian_packages import ProgramsMissing
from tests.local_kafka import LocalKafka
from tests.messages import observation, position
from tests.second_client import SecondClient
from tests.service.cli.test_cli import becomes_ready, environment, serving
from tests.service.conftest import send, settings_for
from tests.service.test_hostile_names import HOSTILE, is_harmless
from tests.terminal import Terminal
from tests.waiting import DEADLINE_S, wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.packaging]
PROGRAM = [sys.executable, "-m", "sparklag_service"]
COLOUR_CODES = {*range(30, 39), *range(40, 49), *range(90, 108)}
"""Codes of a terminal's SGR sequences."""
HELD = 1_234
"""Records of the topic that the queries read."""
PROCESSED = {"payments": 0, "orders": 1_200, "clicks": HELD}
FAILURE = "java.lang.IllegalStateException: the warehouse refuses every row of the batch"


class RunningService(NamedTuple):
    process: subprocess.Popen[str]
    url: str


@pytest.fixture(scope="module")
def service(kafka: LocalKafka, second_client: SecondClient) -> Iterator[RunningService]:
    """It knows a query that failed, one that lags, one that does not, and the hostile ones."""
    settings = settings_for(kafka.bootstrap_servers)
    topic = second_client.create(f"clicks-{settings.group_id}")
    second_client.produce(topic, [b"x"] * HELD)
    with serving(settings) as (process, url):
        becomes_ready(url)
        queries = list(PROCESSED.items())
        queries += [(f"hostile {name[:100]}", HELD) for name in HOSTILE.values()]

        def report(names: Collection[str]) -> None:
            for number, (name, processed) in enumerate(queries):
                if name not in names:
                    continue
                failed: dict[str, Any] = {}
                if name == "payments":
                    failed = {"cause": "terminated", "exception": FAILURE}
                received = observation(
                    query_id=f"{number:08d}-0000-4000-8000-000000000001",
                    query=name,
                    observed_at=epoch_ms(),
                    processed_at=epoch_ms(),
                    sources=[position({topic: {0: processed}})],
                    **failed,
                )
                send(second_client, settings.offsets_topic, received)

        report([name for name, _ in queries])

        def statuses() -> list[str]:
            listed = httpx.get(f"{url}/lag", timeout=DEADLINE_S).json()["queries"]
            return sorted(query["status"] for query in listed)

        with repeated(lambda: report([name for name, _ in queries if name != "payments"])):
            expected = ["FAILED"] + ["OK"] * (len(queries) - 1)
            wait_for(lambda: statuses() == expected, "every query is there")
            yield RunningService(process, url)


@contextmanager
def repeated(report: Callable[[], None]) -> Iterator[None]:
    """Drivers that say that they live: a query that none speaks of for long is STOP."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(5):
            report()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def terminal(width: int, height: int, *arguments: str, **variables: str) -> Terminal:
    own = {name: value for name, value in environment(None).items() if name != "TERM"}
    try:
        return Terminal([*PROGRAM, *arguments], width, height, own | variables)
    except ProgramsMissing as missing:
        pytest.fail(str(missing), pytrace=False)


def row(screen: str, name: str) -> str:
    """The line of a query in the table; empty where it is not on the screen."""
    return next((line for line in screen.splitlines() if f" {name} " in line), "")


def test_eighty_by_twenty_four_shows_what_counts(service: RunningService) -> None:
    with terminal(80, 24, "top", "--url", service.url) as screen:
        screen.shows("1 FAILED")
        screen.shows("records behind")
        received = screen.shows("q Quit")
        lines = received.splitlines()
        assert all(len(line) <= 80 for line in lines)
        assert lines[0].startswith("sparklag top  read ")
        assert "18 queries  1 FAILED" in lines[1]
        assert lines[2].startswith("1,268 records behind  time lag ")
        assert " ".join(lines[3].split()) == "query status lag time lag lag, 12 min reason"
        worst = lines[4]
        assert worst.startswith(">!! payments ")
        assert "FAILED" in worst
        assert "1,234" in worst
        assert "█" in worst
        assert "the query fail" in worst
        assert FAILURE in " ".join(received.split())
        assert lines[-1] == "↑↓ Select enter Open / Filter s Sort r Reverse p Pause ? Help q Quit"
        screen.press("q")
        assert screen.exit_code() == 0


def test_a_hundred_and_forty_by_forty_shows_more(service: RunningService) -> None:
    with terminal(140, 40, "top", "--url", service.url) as screen:
        headings = ("catch-up", "headroom", "running batch", "last measured", "reason")
        received = [screen.shows(heading) for heading in headings][-1]
        line = next(
            line for line in received.splitlines() if "time lag" in line and "query" in line
        )
        assert all(heading in line for heading in headings)
        received = screen.shows("orders")
        assert "34" in row(received, "orders")
        screen.resize(80, 24)

        def is_folded() -> bool:
            received = screen.screen()
            return "headroom" not in received and "1,234" in row(received, "payments")

        wait_for(is_folded, "columns are folded away")


def test_no_name_is_obeyed_by_the_terminal(service: RunningService) -> None:
    with terminal(140, 40, "top", "--url", service.url) as screen:
        wait_for(
            lambda: screen.screen().count("hostile ") >= len(HOSTILE), "every hostile name is there"
        )
        received = screen.screen()
        assert is_harmless(received)
        assert "hostile [bold red]x[/]" in received


@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_without_colours_words_remain(service: RunningService, variable: dict[str, str]) -> None:
    with terminal(80, 24, "top", "--url", service.url, **variable) as screen:
        received = screen.shows(">!! payments")
        assert "FAILED" in row(received, "payments")
        codes = ";".join(re.findall(r"\x1b\[([\d;]*)m", screen.screen(escapes=True)))
        assert not {int(code) for code in codes.split(";") if code} & COLOUR_CODES


@pytest.mark.parametrize("end", ["C-c", "SIGTERM"])
def test_it_ends_cleanly_and_gives_the_terminal_back(service: RunningService, end: str) -> None:
    with terminal(80, 24, "top", "--url", service.url) as screen:
        screen.shows("payments")
        if end == "C-c":
            screen.press("C-c")
        else:
            screen.signal(signal.SIGTERM)
        assert screen.exit_code() == (130 if end == "C-c" else 143)
        # The screen from before is there again, and what is typed is echoed.
        wait_for(lambda: "payments" not in screen.screen(), "the screen from before")
        screen.press("echoed")
        screen.shows("echoed")


def test_a_service_that_remains_still_does_not_hold_up_the_keys(service: RunningService) -> None:
    with terminal(80, 24, "top", "--url", service.url) as screen:
        screen.shows("payments")
        service.process.send_signal(signal.SIGSTOP)
        try:
            screen.press("s")
            screen.shows("sort: lag")
            screen.shows("NO ANSWER, shown as of")
            assert "payments" in screen.screen()
            screen.press("q")
            assert screen.exit_code() == 0
        finally:
            service.process.send_signal(signal.SIGCONT)


def test_a_watched_query_stays_in_place_while_its_service_hangs(service: RunningService) -> None:
    arguments = ("lag", "orders", "--watch", "--interval", "0.5", "--url", service.url)
    with terminal(80, 24, *arguments) as screen:
        received = screen.shows("34 records, 34 in the worst partition")
        assert received.count("worst partition,") == 1
        service.process.send_signal(signal.SIGSTOP)
        try:
            screen.shows("NO ANSWER, shown as of")
        finally:
            service.process.send_signal(signal.SIGCONT)
        wait_for(lambda: "NO ANSWER" not in screen.screen(), "it answers again")
        assert screen.screen().count("worst partition,") == 1
        screen.press("C-c")
        assert screen.exit_code() == 130
        assert "34 records" in screen.screen()
