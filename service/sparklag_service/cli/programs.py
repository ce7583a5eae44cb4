"""Commands that are separate programs: `sparklag serve`; and `demo`, `report` and `history run`,
which run on Spark and have their own options."""

from __future__ import annotations

import asyncio
import os
import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from sparklag_schemas import load_settings
from sparklag_schemas.errors import install_command
from sparklag_service.cli.commands import PASS_ON, CommandGroup
from sparklag_service.cli.terminal import BootstrapServers, Config
from sparklag_service.errors import ServiceError

history = typer.Typer(help="The history of lag.", no_args_is_help=True, cls=CommandGroup)


def serve(
    bootstrap_servers: BootstrapServers = None,
    http_host: Annotated[str | None, typer.Option(help="Address to serve on.")] = None,
    http_port: Annotated[int | None, typer.Option(help="Port to serve on; 0: a free one.")] = None,
    config: Config = None,
) -> None:
    """Run the service: read observations, measure lag, publish it, serve it over REST."""
    # The server takes seconds to load, and `sparklag lag` is a frequent probe.
    from sparklag_schemas.runtime.log_output import configure_logs
    from sparklag_service.server import serve as serve_until_signal

    settings = load_settings(
        config=config,
        overrides={
            "bootstrap_servers": bootstrap_servers,
            "http_host": http_host,
            "http_port": http_port,
        },
    )
    configure_logs(settings)
    asyncio.run(serve_until_signal(settings))


def demo(context: typer.Context) -> None:
    """Start Kafka, a producer, Spark queries and the service, and watch the lag."""
    needs_spark = "--kafka-only" not in context.args
    _replace_process("demo", "sparklag_jobs.demo", context.args, needs_spark=needs_spark)


def report(context: typer.Context) -> None:
    """Report past lag: how often each query was within target, its worst hours, and the trend."""
    _replace_process("report", "sparklag_jobs.report.lag_report", context.args)


@history.command("run", context_settings={**PASS_ON})
def run_history(context: typer.Context) -> None:
    """Keep the history of lag in tables, with a Spark job."""
    _replace_process("history", "sparklag_jobs.history.lag_history", context.args)


def _replace_process(
    command: str, module: str, arguments: list[str], *, needs_spark: bool = True
) -> None:
    if needs_spark and find_spec("pyspark") is None:
        raise ServiceError(f"the {command} needs pyspark: {install_command('demo')}")
    if os.name == "nt":  # exec would not wait there, and the jobs lock files as Unix does
        raise ServiceError(f"the {command} does not run on Windows: run it in WSL")
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])
