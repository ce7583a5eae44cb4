"""The tools the faults need, and the table they fill."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.faults.kafka_cluster import KafkaCluster
from tests.faults.report import ROWS, Row, table, write_json
from tests.faults.tools import Tell, ToolMissing, stepped_clock_library, toxiproxy_server
from tests.faults.toxiproxy import Toxiproxy

_ROW = pytest.StashKey[Row]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--faults-report", metavar="FILE", help="write the table of faults as JSON")
    parser.addoption(
        "--faults-seed", metavar="N", type=int, help="moments at which instances are killed"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[ROWS] = []


@pytest.fixture
def fault_report(request: pytest.FixtureRequest) -> Iterator[Row]:
    name = request.node.name.removeprefix("test_").replace("_", " ")
    row = Row(name.replace("[", " ").removesuffix("]"))
    request.config.stash[ROWS].append(row)
    request.node.stash[_ROW] = row
    began_s = time.monotonic()
    yield row
    row.took_s = time.monotonic() - began_s


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    row = item.stash.get(_ROW, None)
    if row is not None and (report.when == "call" or report.outcome != "passed"):
        row.result = "held" if report.passed else "FAILED"
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    rows = config.stash.get(ROWS, [])
    if not rows:
        return
    terminalreporter.section("faults")
    for line in table(rows):
        terminalreporter.write_line(line)
    target = config.getoption("--faults-report", default=None)
    if target:
        write_json(rows, Path(str(target)))


@pytest.fixture(scope="session")
def tell(pytestconfig: pytest.Config) -> Tell:
    """Shows whoever runs the tests what they wait for, although output is captured."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def say(text: str) -> None:
        if capture is None:
            sys.stderr.write(f"\n{text}\n")
            return
        with capture.global_and_fixture_disabled():
            sys.stderr.write(f"\n{text}\n")

    return say


@pytest.fixture
def seed(pytestconfig: pytest.Config) -> int:
    requested = pytestconfig.getoption("--faults-seed", default=None)
    return random.randrange(1_000_000) if requested is None else int(requested)


@pytest.fixture
def toxiproxy(tell: Tell, tmp_path: Path) -> Iterator[Toxiproxy]:
    try:
        server = toxiproxy_server(tell)
    except ToolMissing as missing:
        pytest.fail(str(missing), pytrace=False)
    with Toxiproxy(server, tmp_path) as running:
        yield running


@pytest.fixture
def stepped_clock(tell: Tell, tmp_path: Path) -> Path:
    if sys.platform != "linux":
        pytest.fail("the clock of one process is stepped by preloading a library: on Linux only")
    try:
        return stepped_clock_library(tmp_path, tell)
    except ToolMissing as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """Three brokers. A test leaves all of them running, and in sync."""
    with KafkaCluster() as brokers:
        yield brokers
