"""SIGTERM or Ctrl-C at any moment of `sparklag serve`, from its first instruction on, ends it."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from confluent_kafka.admin import AdminClient

from sparklag_schemas import Settings
from tests.local_kafka import LocalKafka
from tests.service.cli.test_cli import environment
from tests.service.conftest import settings_for
from tests.waiting import DEADLINE_S, wait_for

pytestmark = pytest.mark.kafka
AT_ONCE = 4
"""Processes that start beside each other."""
DRAINED = {0, 143, 130}
"""130, 143: there was nothing to drain yet."""
BEFORE_MAIN = {-signal.SIGTERM, -signal.SIGINT}
"""Python itself was still starting, and ends as it does."""


class Start:
    def __init__(self, settings: Settings, log: Path, *runner: str) -> None:
        self._log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *runner, "sparklag_service", "serve", "--http-port", "0"],
                env=environment(settings),
                stdout=file,
                stderr=file,
            )

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def is_up(self) -> bool:
        assert self.process.poll() is None, self.log()
        serving = re.search(r"serving (http://[\w.:]+)", self.log())
        if serving is None:
            return False
        try:
            return httpx.get(f"{serving[1]}/health/ready", timeout=DEADLINE_S).is_success
        except httpx.TransportError:
            return False

    def ends_well(self, number: signal.Signals, moment_s: float) -> None:
        what = f"{number.name} after {moment_s:.2f} s"
        try:
            code = self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{what}: it lives on:\n{self.log()}")
        # Python's exit code is 1 where it was importing `site`, or `runpy`.
        is_before_main = code in BEFORE_MAIN or any(
            words in self.log() for words in ("init_import_site", "Could not import runpy")
        )
        assert is_before_main or code in DRAINED, f"{what}: exit code {code}:\n{self.log()}"
        if not is_before_main:
            assert "Traceback" not in self.log(), f"{what}:\n{self.log()}"
        assert "sparklag_service/cli" not in self.log(), f"{what}: a trace of ours:\n{self.log()}"


def longest_start_s(settings: Settings, folder: Path) -> float:
    """Seconds from the process's start until it answers, with as many that start beside it."""
    began = time.monotonic()
    starts = [Start(settings, folder / f"{number}.log") for number in range(AT_ONCE)]
    try:
        wait_for(lambda: all(start.is_up() for start in starts), "they are up")
        return time.monotonic() - began
    finally:
        for start in starts:
            start.process.terminate()
        for start in starts:
            start.ends_well(signal.SIGTERM, time.monotonic() - began)


@pytest.mark.parametrize("moments", [12, pytest.param(100, marks=pytest.mark.soak)])
def test_it_ends_at_any_time_of_its_start(kafka: LocalKafka, moments: int, tmp_path: Path) -> None:
    settings = settings_for(kafka.bootstrap_servers)
    span_s = 1.5 * longest_start_s(settings, tmp_path)
    # One in each part of the span, in any order.
    seed = random.randrange(1_000_000)
    chance = random.Random(seed)
    planned = [span_s * (part + chance.random()) / moments for part in range(moments)]
    chance.shuffle(planned)
    for first in range(0, moments, AT_ONCE):
        due_s = sorted(planned[first : first + AT_ONCE])
        began = time.monotonic()
        starts = [Start(settings, tmp_path / f"{at}.log") for at in due_s]
        numbers = [signal.SIGINT if chance.random() < 0.5 else signal.SIGTERM for _ in due_s]
        try:
            for start, number, moment_s in zip(starts, numbers, due_s, strict=True):
                time.sleep(max(0.0, began + moment_s - time.monotonic()))
                start.process.send_signal(number)
            for start, number, moment_s in zip(starts, numbers, due_s, strict=True):
                start.ends_well(number, moment_s)
        finally:
            for start in starts:
                start.process.kill()
                start.process.wait()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    described = admin.describe_consumer_groups([settings.group_id])[settings.group_id]
    assert described.result(DEADLINE_S).members == [], f"seed {seed}"


def test_it_drains_where_loops_handle_no_signals(kafka: LocalKafka, tmp_path: Path) -> None:
    settings = settings_for(kafka.bootstrap_servers)
    start = Start(settings, tmp_path / "log", "tests.platforms.without_unix")
    try:
        wait_for(start.is_up, "it is up")
        start.process.terminate()
        assert start.process.wait(DEADLINE_S) == 0, start.log()
    finally:
        start.process.kill()
