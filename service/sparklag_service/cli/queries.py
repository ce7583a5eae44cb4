"""`sparklag queries`"""

from __future__ import annotations

from typing import Annotated

import typer

from sparklag_schemas.formatting import ago, catch_up, oldest, records, trend
from sparklag_schemas.runtime.clock import epoch_ms
from sparklag_service.cli.console import console, escape, print_json, table
from sparklag_service.cli.options import DEFAULT_URL, Json, Url
from sparklag_service.cli.service_client import list_lag

_LEFT = ("query", "status", "last batch", "last seen", "by")
_HEADINGS = (*_LEFT[:2], "lag", "oldest", "trend", "caught up in", *_LEFT[2:])


def queries(
    url: Url = DEFAULT_URL,
    status: Annotated[str | None, typer.Option(help="Only queries in this state.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only queries that read it.")] = None,
    json: Json = False,
) -> None:
    """List all queries: their lag, how old its oldest record is, and where it is going."""
    summaries = list_lag(url, status=status, topic=topic)
    if json:
        print_json(summaries)
        return
    if not summaries:
        missing = "no query" + (" like this" if status or topic else " has been observed yet")
        console().print(missing)
        return
    shown = table(_HEADINGS, left=_LEFT)
    now_ms = epoch_ms()
    for query in summaries:
        shown.add_row(
            escape(query["query"] or query["query_id"]),
            query["status"],
            records(query["total_lag"]),
            oldest(query["total_lag"], query["max_time_lag_s"]),
            trend(query["lag_trend"]),
            catch_up(query["catch_up_s"], query["catch_up_reason"]),
            ago(query["processed_at"], now_ms),
            ago(query["observed_at"], now_ms),
            query["origin"],
        )
    console(wrap=True).print(shown)
