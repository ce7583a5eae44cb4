"""`sparklag queries`"""

from __future__ import annotations

import json as json_library
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from sparklag_schemas.formatting import ago, catch_up, oldest, records, trend
from sparklag_schemas.runtime.clock import epoch_ms
from sparklag_service.cli.markup import escape
from sparklag_service.cli.options import DEFAULT_URL, Json, Url
from sparklag_service.cli.service_client import list_lag

_HEADINGS = ("query", "status", "lag", "oldest", "trend", "caught up in", "last batch", "heard of")
_NUMBERS = ("lag", "oldest", "trend", "caught up in")


def queries(
    url: Url = DEFAULT_URL,
    status: Annotated[str | None, typer.Option(help="Only queries in this state.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only queries that read it.")] = None,
    json: Json = False,
) -> None:
    """List all queries: their lag, how old its oldest record is, and where it is going."""
    found = list_lag(url, status=status, topic=topic)
    if json:
        typer.echo(json_library.dumps(found))
        return
    console = Console(highlight=False)
    if not found:
        console.print("no query" + (" like this" if status or topic else " has been observed yet"))
        return
    table = Table(box=None, pad_edge=False)
    for heading in (*_HEADINGS, "by"):
        table.add_column(heading, justify="right" if heading in _NUMBERS else "left")
    now_ms = epoch_ms()
    for query in found:
        table.add_row(
            escape(query["query"] or query["query_id"]),
            escape(query["status"]),
            records(query["total_lag"]),
            oldest(query["total_lag"], query["max_time_lag_s"]),
            trend(query["lag_trend"]),
            catch_up(query["catch_up_s"], query["catch_up_reason"]),
            ago(query["processed_at"], now_ms),
            ago(query["observed_at"], now_ms),
            escape(query["origin"]),
        )
    console.print(table)
