"""`sparklag demo` and `sparklag report`: they run on Spark, and have options of their own."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import typer

from sparklag_service.errors import ServiceError

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def demo(context: typer.Context) -> None:
    """Start Kafka, a producer, a Spark query and the service, and watch the lag."""
    _replace_process("demo", "sparklag_pipeline.demo", context.args)


def report(context: typer.Context) -> None:
    """Show what the history of lag tells: within target or not, when, how far behind, the trend."""
    _replace_process("report", "sparklag_pipeline.report.lag_report", context.args)


def _replace_process(command: str, module: str, arguments: list[str]) -> None:
    """The service never imports what runs on Spark: the program takes this process over."""
    if find_spec("pyspark") is None:
        raise ServiceError(f"the {command} needs pyspark: pip install 'sparklag[demo]'")
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])
