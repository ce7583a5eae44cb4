"""The demo: broker, orders, PySpark query and service on this machine, and the lag, live.

python -m sparklag_pipeline.demo [--seconds N]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from rich.console import Console

from sparklag_kafka.clients.client_options import quiet_client_logs
from sparklag_pipeline.demo.orders import QUERY_NAME
from sparklag_pipeline.demo.processes import DemoProcesses
from sparklag_pipeline.demo.screen import print_line, showing
from sparklag_pipeline.demo.state import DemoState
from sparklag_pipeline.demo.topics import follow_lag
from sparklag_schemas.errors import SparklagError
from sparklag_schemas.timestamps import epoch_ms

TICK_S: Final = 0.2
FIRST_LAG_TIMEOUT_S: Final = 300.0  # a busy machine takes long to start Spark
# What `--seconds` shows at least, on a machine where the start alone took that long.
SHOWN_AT_LEAST_S: Final = 10.0


class NoLagEvent(SparklagError):
    """No lag of the query was read from `consumer-lag` in time."""


class DemoSignals:
    """Records SIGINT, SIGTERM and SIGHUP. Those that come during the clean-up change nothing."""

    def __init__(self) -> None:
        self.received = False
        self._interrupts = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._record)

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """For blocking calls: inside, a signal raises KeyboardInterrupt."""
        self._interrupts = True
        try:
            if self.received:
                raise KeyboardInterrupt
            yield
        finally:
            self._interrupts = False

    def _record(self, number: int, frame: FrameType | None) -> None:
        self.received = True
        if self._interrupts:
            raise KeyboardInterrupt


def run(arguments: argparse.Namespace, directory: Path, signals: DemoSignals) -> int:
    """The whole demo, its files in `directory`; the exit code."""
    state = DemoState(
        query=QUERY_NAME, started_at=time.monotonic(), since_ms=epoch_ms(), command=_own_command()
    )
    processes = DemoProcesses(state, directory, arguments.http_port)
    console = Console(highlight=False)
    failure: SparklagError | None = None
    try:
        with showing(state, console) as refresh, contextlib.suppress(KeyboardInterrupt):
            with signals.interrupting():
                for _ in processes.start():
                    refresh()
            asyncio.run(_watch(state, processes, refresh, signals, arguments.seconds))
    except SparklagError as error:
        failure = error
    finally:
        print_line(console, "ending everything ...")
        processes.stop()
    if failure is not None:
        print_line(console, f"the demo failed: {failure}")
        print_line(console, f"its files are in {directory}")
        return 1
    print_line(console, state.summary())
    return 0


async def _watch(
    state: DemoState,
    processes: DemoProcesses,
    refresh: Callable[[], None],
    signals: DemoSignals,
    seconds: float | None,
) -> None:
    """Show the lag until a signal comes, or `seconds` after the start.

    Raises ProcessFailed when a process has died, NoLagEvent when no lag came.
    """
    feed = asyncio.create_task(follow_lag(processes.broker.bootstrap_servers, state))
    try:
        while not signals.received and not _is_over(state, seconds):
            if feed.done():
                feed.result()
            processes.poll()
            refresh()
            await asyncio.sleep(TICK_S)
    finally:
        feed.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await feed


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
        epilog="Exit code: 0, or 1 where a part died or no lag event was read from consumer-lag.",
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
    """Exit code: 0, also after Ctrl-C; 1 where a part died or no lag event came."""
    arguments = _arguments(argv)
    quiet_client_logs()
    signals = DemoSignals()
    directory = arguments.keep or Path(tempfile.mkdtemp(prefix="sparklag-demo-"))
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.stderr.write(f"cannot keep files in {directory}: {error.strerror}\n")
        return 1
    code = run(arguments, directory.resolve(), signals)
    if arguments.keep is None and code == 0:
        shutil.rmtree(directory, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
