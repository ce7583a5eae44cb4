"""`sparklag report`: the lag of every query over time, as HTML or JSON."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console

from sparklag_jobs import query_process
from sparklag_jobs.arguments import CommandParser
from sparklag_jobs.broker.maven import table_format_jars
from sparklag_jobs.errors import JobSettingWrong
from sparklag_jobs.history import rollups
from sparklag_jobs.history.tables import FORMATS, Tables, open_tables
from sparklag_jobs.report.page import as_html
from sparklag_jobs.report.query_report import QueryReport, query_reports
from sparklag_jobs.report.screen import print_report
from sparklag_schemas.errors import SparklagError
from sparklag_schemas.presentation.tables import width_of
from sparklag_schemas.timestamps import epoch_ms, timestamp_ms

FORMAT_VERSION: Final = "1.0"


def as_json(reports: Sequence[QueryReport], since_ms: int, until_ms: int) -> str:
    """The JSON document, with a final newline."""
    document = {
        "format_version": FORMAT_VERSION,
        "since": since_ms,
        "until": until_ms,
        "queries": [_document(report) for report in reports],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _document(report: QueryReport) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(report)
    del document["minutes"]  # only for the charts
    return document


def build_session(tables: Tables) -> SparkSession:
    """A local session that logs nothing. Raises JavaMissing, DownloadFailed."""
    return query_process.build_session(
        "lag-report",
        settings={**tables.session_settings(), "spark.sql.parquet.enableVectorizedReader": "true"},
        local={"spark.master": "local[*]", "spark.sql.shuffle.partitions": "4"},
        jars=lambda: table_format_jars(tables.format),
        reads_kafka=False,
        log_level="OFF",
    )


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(
        "report",
        "Report past lag: how often each query was within target, its worst hours, and the trend."
        "\n\nExit code 0; 1 where there is nothing in that time; 2 where there is no"
        " history, or an argument is wrong.",
    )
    parser.add_argument(
        "--since",
        default="7d",
        help="From then on: a duration before now (7d, 12h, 30m) or ISO 8601 (UTC).",
    )
    parser.add_argument("--until", help="The same, until then. [default: now]")
    parser.add_argument("--query", help="Only this query, by its name or id.")
    parser.add_argument("--table", default="lag-history", help="Folder or URI of the history.")
    parser.add_argument(
        "--table-format", choices=FORMATS, default="parquet", help="Format of its tables."
    )
    parser.add_argument(
        "--format",
        choices=("table", "html", "json"),
        default="table",
        help="What to write: a table is for people, and as wide as the terminal.",
    )
    parser.add_argument("--output", type=Path, help="A file. [default: standard output]")
    return parser.parse_args(argv)


def _period(arguments: argparse.Namespace, now_ms: int) -> tuple[int, int]:
    try:
        since_ms = timestamp_ms(arguments.since, now_ms)
        until_ms = now_ms if arguments.until is None else timestamp_ms(arguments.until, now_ms)
    except ValueError as error:
        raise JobSettingWrong(f"--since, --until: {error}") from error
    if since_ms >= until_ms:
        raise JobSettingWrong(
            f"--since {arguments.since} is not before --until {arguments.until or 'now'}"
        )
    return since_ms, until_ms


def _write(
    reports: Sequence[QueryReport], since_ms: int, until_ms: int, arguments: argparse.Namespace
) -> None:
    path: Path | None = arguments.output
    with nullcontext(sys.stdout) if path is None else path.open("w", encoding="utf-8") as output:
        if arguments.format == "table":
            console = Console(file=output, highlight=False, emoji=False, width=width_of(output))
            print_report(console, reports, since_ms, until_ms)
        else:
            rendered = {"json": as_json, "html": as_html}[arguments.format]
            output.write(rendered(reports, since_ms, until_ms))


def main(argv: Sequence[str] | None = None) -> int:
    """Write the report. Exit code: 0; 1 without data in that time; 2 without a history."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    arguments = _arguments(argv)
    try:
        since_ms, until_ms = _period(arguments, epoch_ms())
        tables = open_tables(arguments.table_format, arguments.table)
        tables.require(rollups.MINUTES)
        spark = build_session(tables)
        try:
            minutes, hours = (
                rollups.read_windows(spark, tables, name, since_ms, until_ms, arguments.query)
                for name in (rollups.MINUTES, rollups.HOURS)
            )
        finally:
            spark.stop()
        reports = query_reports(minutes, hours)
        if not reports:
            of_query = f" of query {arguments.query}" if arguments.query else ""
            sys.stderr.write(
                f"sparklag: nothing{of_query} in {arguments.table} from"
                f" {arguments.since} to {arguments.until or 'now'}\n"
            )
            return 1
        _write(reports, since_ms, until_ms, arguments)
    except SparklagError as error:
        sys.stderr.write(f"sparklag: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"sparklag: {arguments.output}: {error.strerror}\n")
        return 2
    except (PySparkException, Py4JError) as error:
        first_line = str(error).strip().splitlines()[0]
        sys.stderr.write(f"sparklag: {arguments.table} cannot be read: {first_line}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
