"""`sparklag queries`"""

from __future__ import annotations

import json as json_library
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sparklag_service.cli.lag import age, records
from sparklag_service.cli.options import DEFAULT_URL, Json, Url
from sparklag_service.cli.service_client import list_lag


def queries(
    url: Url = DEFAULT_URL,
    status: Annotated[str | None, typer.Option(help="Only queries in this state.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only queries that read it.")] = None,
    json: Json = False,
) -> None:
    """List all queries and their lag."""
    found = list_lag(url, status=status, topic=topic)
    if json:
        typer.echo(json_library.dumps(found))
        return
    console = Console(highlight=False)
    if not found:
        console.print("no query" + (" like this" if status or topic else " has been observed yet"))
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("query", "status", "lag", "worst partition", "last batch", "heard of", "by"):
        right = heading in ("lag", "worst partition")
        table.add_column(heading, justify="right" if right else "left")
    for query in found:
        table.add_row(
            escape(query["query"] or query["query_id"]),
            query["status"],
            records(query["total_lag"]),
            records(query["max_lag"]),
            age(query["processed_at"]),
            age(query["observed_at"]),
            query["origin"],
        )
    console.print(table)
