"""The demo: broker, orders, PySpark query and service on this machine, and the lag, live.

python -m sparklag_pipeline.demo [--seconds N]
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Final
from urllib.request import ProxyHandler, build_opener

from rich.console import Console

from sparklag_pipeline.demo.orders import QUERY_NAME
from sparklag_pipeline.demo.processes import DemoProcesses
from sparklag_pipeline.demo.screen import Screen
from sparklag_pipeline.demo.state import DemoState
from sparklag_schemas import LagEvent, decode_lag_event
from sparklag_schemas.codec import MAX_MESSAGE_BYTES
from sparklag_schemas.errors import SparklagError
from sparklag_schemas.timestamps import epoch_ms

TICK_S: Final = 0.2
FIRST_LAG_TIMEOUT_S: Final = 300.0  # a busy machine takes long to start Spark
# What `--seconds` shows at least, on a machine where the start alone took that long.
SHOWN_AT_LEAST_S: Final = 10.0
_ANSWER_TIMEOUT_S: Final = 2.0

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# The service is on this machine, and a proxy of the environment elsewhere.
_open_url: Final = build_opener(ProxyHandler({})).open


class NoLagEvent(SparklagError):
    """The service answered with no lag of the query in time."""


def run(arguments: argparse.Namespace, directory: Path) -> int:
    """The whole demo, its files in `directory`; the exit code."""
    state = DemoState(query=QUERY_NAME, started_at=time.monotonic(), since_ms=epoch_ms())
    screen = Screen(Console(highlight=False), state.started_at)
    processes = DemoProcesses(screen.report, directory, arguments.http_port)
    failure: SparklagError | None = None
    try:
        for number in _SIGNALS:
            signal.signal(number, signal.default_int_handler)
        with screen.live:
            processes.start()
            _watch(state, processes, screen, arguments.seconds)
    except KeyboardInterrupt:
        pass
    except SparklagError as error:
        failure = error
    finally:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        screen.print("ending everything ...")
        processes.stop()
    if failure is not None:
        screen.print(f"the demo failed: {failure}\nits files are in {directory}")
        return 1
    screen.print(state.summary())
    return 0


def _watch(
    state: DemoState, processes: DemoProcesses, screen: Screen, seconds: float | None
) -> None:
    """Show the lag, until `seconds` after the start.

    Raises ProcessFailed when a process has died, NoLagEvent when no lag came.
    """
    command, servers = _own_command(), processes.broker.bootstrap_servers
    while not _is_over(state, seconds):
        processes.poll()
        url = f"{processes.http_url}/lag/{state.query}"
        if processes.service_is_ready and (event := _read_lag(url)) is not None:
            state.add(event, time.monotonic())
        if state.event is not None:
            addresses = {
                "the lag, over REST": f"curl {url}",
                "every REST call": f"{processes.http_url}/docs",
                "the lag events": f"{command} tail --bootstrap-servers {servers}",
            }
            screen.show(state.event, epoch_ms(), addresses)
        time.sleep(TICK_S)


def _read_lag(url: str) -> LagEvent | None:
    """The service's answer; None while it has none."""
    try:
        with _open_url(url, timeout=_ANSWER_TIMEOUT_S) as answer:
            return decode_lag_event(answer.read(MAX_MESSAGE_BYTES))
    except (OSError, HTTPException):
        return None


def _is_over(state: DemoState, seconds: float | None) -> bool:
    elapsed = time.monotonic() - state.started_at
    if state.first_lag_s is None:
        if elapsed > max(FIRST_LAG_TIMEOUT_S, seconds or 0):
            raise NoLagEvent(f"{state.summary()} within {elapsed:.0f} s")
        return False
    return seconds is not None and elapsed >= max(seconds, state.first_lag_s + SHOWN_AT_LEAST_S)


def _own_command() -> str:
    """What to type for `sparklag` here: its path where PATH has another one, or none."""
    own = Path(sys.executable).with_name("sparklag")
    if shutil.which("sparklag") == str(own) or not own.exists():
        return "sparklag"
    return str(own.relative_to(Path.cwd()) if own.is_relative_to(Path.cwd()) else own)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="sparklag demo",
        description="Start a Kafka broker, a producer, a PySpark query and the sparklag service on"
        " this machine, and watch the query's lag. Ctrl-C ends everything.",
        epilog="Exit code: 0, or 1 where a part died or the service answered with no lag.",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        help="end by itself after so long (later only where the first lag event took longer)",
    )
    parser.add_argument(
        "--http-port", type=int, default=8085, help="of the service; a free one where it is taken"
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="keep data, checkpoint and logs there; the next run with it continues from them",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0, also after Ctrl-C; 1 where a part died or no lag came."""
    arguments = _arguments(argv)
    directory = arguments.keep or Path(tempfile.mkdtemp(prefix="sparklag-demo-"))
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.stderr.write(f"cannot keep files in {directory}: {error.strerror}\n")
        return 1
    code = run(arguments, directory.resolve())
    if arguments.keep is None and code == 0:
        shutil.rmtree(directory, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
