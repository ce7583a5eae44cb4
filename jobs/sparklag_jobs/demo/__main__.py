"""The demo: broker, producer, PySpark queries and service on this machine, with live lag.

python -m sparklag_jobs.demo [--seconds N] [--kafka-only]
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Final
from urllib.request import ProxyHandler, build_opener

from rich.console import Console

from sparklag_jobs.arguments import CommandParser
from sparklag_jobs.broker.child_process import is_free
from sparklag_jobs.broker.local_kafka import LocalKafka
from sparklag_jobs.demo.processes import DemoProcesses, QueryLag
from sparklag_jobs.demo.screen import Screen, broker_usage, next_steps, own_command, own_python
from sparklag_jobs.demo.streams import QUERY_NAMES
from sparklag_jobs.errors import ProcessFailed
from sparklag_schemas import LagEvent, decode_lag_event
from sparklag_schemas.codec import MAX_MESSAGE_BYTES
from sparklag_schemas.errors import SparklagError
from sparklag_schemas.runtime.tasks import ending_signals
from sparklag_schemas.timestamps import epoch_ms

TICK_S: Final = 0.2
FIRST_LAG_TIMEOUT_S: Final = 300.0  # a busy machine takes long to start Spark
# Minimum time that `--seconds` shows the lag, after a slow start.
SHOWN_AT_LEAST_S: Final = 10.0
_ANSWER_TIMEOUT_S: Final = 2.0

# Ignores a proxy of the environment: the service is on this machine.
_open_url: Final = build_opener(ProxyHandler({})).open


class NoLagEvent(SparklagError):
    """The service reported no lag of a query in time."""


def run(arguments: argparse.Namespace, directory: Path) -> int:
    """Run the whole demo, with its files in `directory`. Returns the exit code."""
    lags = [QueryLag(name, time.monotonic(), epoch_ms()) for name in QUERY_NAMES]
    screen = Screen(Console(highlight=False), time.monotonic())
    processes = DemoProcesses(screen.report, directory, arguments.http_port, arguments.kafka_port)

    def show() -> None:
        processes.start()
        _watch(lags, processes, screen, arguments.seconds)

    code = _run_until_end(show, processes.stop, screen, directory)
    if code == 0:
        screen.print("\n".join([*(lag.summary() for lag in lags), "", next_steps(own_command())]))
    return code


def run_kafka_only(arguments: argparse.Namespace, directory: Path) -> int:
    """Run only the broker, with its files in `directory`. Returns the exit code."""
    started_at = time.monotonic()
    screen = Screen(Console(highlight=False), started_at)
    broker = LocalKafka(directory / "kafka", arguments.kafka_port)

    def show() -> None:
        screen.report("Kafka: one broker on this machine")
        broker.start()
        servers = broker.bootstrap_servers
        screen.announce("Bootstrap servers", servers)
        screen.print(broker_usage(servers, own_command(), own_python()))
        seconds = arguments.seconds
        while seconds is None or time.monotonic() - started_at < seconds:
            if not broker.is_alive():
                raise ProcessFailed(broker.describe_end())
            time.sleep(TICK_S)

    return _run_until_end(show, broker.stop, screen, directory)


def _run_until_end(
    run: Callable[[], None], stop: Callable[[], None], screen: Screen, directory: Path
) -> int:
    """Call `run` until it returns, fails or a signal arrives, then `stop`; the exit code."""
    failure: SparklagError | None = None
    signals = ending_signals(signal.SIGINT, signal.SIGHUP)
    try:
        for number in signals:
            signal.signal(number, signal.default_int_handler)
        with screen.live:
            run()
    except KeyboardInterrupt:
        pass
    except SparklagError as error:
        failure = error
    finally:
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
        screen.print("ending everything ...")
        stop()
    if failure is not None:
        screen.print(f"the demo failed: {failure}\nits files are in {directory}")
        return 1
    return 0


def _watch(
    lags: Sequence[QueryLag], processes: DemoProcesses, screen: Screen, seconds: float | None
) -> None:
    """Show the lag. Raises ProcessFailed if a process died, NoLagEvent if no lag arrived."""
    command, servers = own_command(), processes.broker.bootstrap_servers
    is_announced = False
    while not _is_over(lags, seconds):
        processes.poll()
        url = processes.http_url
        if processes.service_is_ready:
            if not is_announced:
                screen.announce("The page", f"{url}/")
                is_announced = True
            for lag in lags:
                if (event := _read_lag(f"{url}/lag/{lag.query}")) is not None:
                    lag.add(event, time.monotonic())
            addresses = {
                "the page": f"{url}/",
                "the lag, over REST": f"curl {url}/lag/{lags[0].query}",
                "your own query": f"reads {servers}, then: {command} lag NAME",
                "the lag events": f"{command} tail --bootstrap-servers {servers}",
            }
            screen.show(lags, epoch_ms(), addresses)
        time.sleep(TICK_S)


def _read_lag(url: str) -> LagEvent | None:
    """The service's lag event of a query. None: not available yet."""
    try:
        with _open_url(url, timeout=_ANSWER_TIMEOUT_S) as answer:
            return decode_lag_event(answer.read(MAX_MESSAGE_BYTES))
    except (OSError, HTTPException):
        return None


def _is_over(lags: Sequence[QueryLag], seconds: float | None) -> bool:
    elapsed = time.monotonic() - lags[0].started_at
    first_lags_s = [lag.first_lag_s for lag in lags if lag.first_lag_s is not None]
    if len(first_lags_s) < len(lags):
        if elapsed > max(FIRST_LAG_TIMEOUT_S, seconds or 0):
            missing = "\n".join(lag.summary() for lag in lags if lag.first_lag_s is None)
            raise NoLagEvent(f"{missing} within {elapsed:.0f} s")
        return False
    return seconds is not None and elapsed >= max(seconds, max(first_lags_s) + SHOWN_AT_LEAST_S)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(
        "demo",
        "Start a Kafka broker, a producer, three PySpark queries and the sparklag service on this"
        " machine, and watch the queries' lag. Ctrl-C ends everything.\n\nExit code 0; 1 where a"
        " part died or the service answered with no lag; 2 for an argument that cannot be used.",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        help="Exit after this time, or later if the first lag event took longer.",
    )
    parser.add_argument(
        "--http-port", type=_port, default=8085, help="Port of the service, or a free one."
    )
    parser.add_argument(
        "--kafka-only", action="store_true", help="Start only the broker, to try things with."
    )
    parser.add_argument(
        "--kafka-port", type=_port, help="Port of the broker. [default: a free one]"
    )
    parser.add_argument(
        "--keep",
        type=Path,
        help="Folder to keep data, checkpoint and logs in; the next run continues from them.",
    )
    return parser.parse_args(argv)


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"expected a port from 1 to 65535, got {text!r}")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo. Exit code: 0, also after Ctrl-C; 1 if a part died or no lag arrived; 2 for an
    invalid argument."""
    arguments = _arguments(argv)
    if arguments.kafka_port is not None and not is_free(arguments.kafka_port):
        return _refuse(f"--kafka-port {arguments.kafka_port} is taken: expected a free port")
    directory = arguments.keep or Path(tempfile.mkdtemp(prefix="sparklag-demo-"))
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return _refuse(f"cannot keep files in {directory}: {error.strerror}")
    program = run_kafka_only if arguments.kafka_only else run
    code = program(arguments, directory.resolve())
    if arguments.keep is None and code == 0:
        shutil.rmtree(directory, ignore_errors=True)
    return code


def _refuse(reason: str) -> int:
    sys.stderr.write(f"{reason}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
