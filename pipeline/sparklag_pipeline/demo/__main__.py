"""The demo: broker, orders, PySpark query and service on this machine, and the lag, live.

python -m sparklag_pipeline.demo.__main__ [--seconds N]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sparklag_kafka.clients.connection import quiet_client_logs
from sparklag_pipeline.demo.lag_feed import follow_lag
from sparklag_pipeline.demo.orders import QUERY_NAME
from sparklag_pipeline.demo.processes import DemoParts
from sparklag_pipeline.demo.progress import Story
from sparklag_pipeline.demo.screen import Screen, open_screen
from sparklag_pipeline.demo.stop_signals import Interrupted, StopSignals
from sparklag_schemas.errors import SparklagError
from sparklag_schemas.runtime.clock import epoch_ms

TICK_S: Final = 0.2
FIRST_LAG_TIMEOUT_S: Final = 300.0  # a busy machine takes long to start Spark
# What `--seconds` shows at least, on a machine where the start alone took that long.
SHOWN_AT_LEAST_S: Final = 10.0


class NoLagEvent(SparklagError):
    """The time is over, and no lag of the query was read from `consumer-lag`."""


async def watch(
    story: Story, parts: DemoParts, screen: Screen, signals: StopSignals, seconds: float | None
) -> None:
    """Show the lag until a signal comes, or `seconds` after the start.

    Raises ProcessFailed when one of the parts has died, NoLagEvent when no lag came.
    """
    feed = asyncio.create_task(follow_lag(parts.broker.bootstrap_servers, story))
    try:
        while not signals.came:
            if feed.done():
                feed.result()
            parts.require_alive()
            parts.advance()
            await asyncio.to_thread(parts.note_service)
            screen.refresh()
            if _is_over(story, seconds):
                return
            await asyncio.sleep(TICK_S)
    finally:
        feed.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await feed


def _is_over(story: Story, seconds: float | None) -> bool:
    elapsed = time.monotonic() - story.started_at
    if story.first_lag_s is None:
        if elapsed > max(FIRST_LAG_TIMEOUT_S, seconds or 0):
            raise NoLagEvent(f"{story.summary()} within {elapsed:.0f} s")
        return False
    return seconds is not None and elapsed >= max(seconds, story.first_lag_s + SHOWN_AT_LEAST_S)


def run(arguments: argparse.Namespace, directory: Path, signals: StopSignals) -> int:
    """The whole demo, its files in `directory`; the exit code."""
    story = Story(
        query=QUERY_NAME,
        started_at=time.monotonic(),
        since_ms=epoch_ms(),
        command=_own_command(),
    )
    parts = DemoParts(story, directory, arguments.http_port)
    failure: SparklagError | None = None
    screen = open_screen(story)
    try:
        with screen:
            try:
                with signals.interrupting():
                    parts.start(screen.refresh)
                asyncio.run(watch(story, parts, screen, signals, arguments.seconds))
            except Interrupted:
                pass
            except SparklagError as error:
                failure = error
    finally:
        # From here on nothing interrupts: it takes some seconds at most.
        signals.ignore()
        screen.say("ending everything ...")
        parts.stop()
    if failure is not None:
        screen.say(f"the demo failed: {failure}")
        screen.say(f"its files are in {directory}")
        return 1
    screen.say(story.summary())
    return 0


def _own_command() -> str:
    """How `sparklag` is to be typed here: by its path where PATH has another one, or none."""
    own = Path(sys.executable).with_name("sparklag")
    if shutil.which("sparklag") == str(own) or not own.exists():
        return "sparklag"
    with contextlib.suppress(ValueError):
        return str(own.relative_to(Path.cwd()))
    return str(own)


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
        help="keep data, checkpoint and logs there; the next run with it goes on from them",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0, also after Ctrl-C; 1 where a part died or no lag event came."""
    arguments = _arguments(argv)
    quiet_client_logs()
    signals = StopSignals()
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
