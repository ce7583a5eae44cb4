"""`sparklag checkpoint`"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from sparklag_kafka.access import quiet_client_logs
from sparklag_kafka.brokers.logs import read_bounds
from sparklag_offsets.checkpoints import (
    CheckpointPosition,
    CheckpointStore,
    SourceLag,
    lag_of,
    read_checkpoint,
)
from sparklag_schemas import Settings, SourcePosition, load_settings
from sparklag_schemas.presentation.tables import Column, FittedTable, escape, plain
from sparklag_schemas.settings.clusters import access_by_address
from sparklag_schemas.text.formatting import records, when
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.cli.terminal import Config, Json, console, print_json
from sparklag_service.errors import ServiceError

_COLUMNS: Final = (
    Column("source", "number", 6),
    Column("topic", "name", 2),
    Column("partition", "number", 0),
    Column("processed", "number", 1),
    Column("planned", "number", 5),
    Column("latest", "number", 4),
    Column("lag", "number", 1),
    Column("reason", "text", 3),
)
_WITHOUT_LAG: Final = 5
"""The columns that need no Kafka."""


def checkpoint(
    path: Annotated[
        str, typer.Argument(help="Where the checkpoint is: a folder, s3://, hdfs:// or the like.")
    ],
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-servers",
            help="Kafka, as host:port[,host:port]: show the lag too, to the end of each log.",
        ),
    ] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show the position of a query from its checkpoint, without the query."""
    settings = load_settings(config=config)
    store = CheckpointStore(settings.checkpoints.storage, settings.checkpoints.timeout_s)
    locations = store.find(path)
    if len(locations) > 1:
        shown = ", ".join(locations[:3]) + (", …" if len(locations) > 3 else "")
        raise ServiceError(f"{len(locations)} checkpoints match, name one: {shown}")
    position = read_checkpoint(store, locations[0])
    lags = _lags(position, bootstrap_servers, settings) if bootstrap_servers else None
    if json:
        print_json(_document(position, lags))
        return
    console(wrap=True).print(_headline(position))
    if position.sources:
        console(wrap=True).print(_table(position, lags))


def _lags(
    position: CheckpointPosition, bootstrap_servers: str, settings: Settings
) -> list[SourceLag]:
    quiet_client_logs()
    access = access_by_address(settings, bootstrap_servers)
    # Later log ends can only be higher: the processed offsets are read already.
    bounds = asyncio.run(read_bounds(position.topics(), access))
    return [lag_of(source.processed, bounds) for source in position.sources]


def _document(position: CheckpointPosition, lags: list[SourceLag] | None) -> dict[str, Any]:
    sources: list[dict[str, Any]] = [
        {"source": source.source, "processed": source.processed, "planned": source.planned}
        for source in position.sources
    ]
    for source, lag in zip(sources, lags or (), strict=False):
        has_position = source["processed"] is not None
        source["latest"] = lag.latest if has_position else None
        source["lag"] = lag.lag if has_position else None
        source["reasons"] = lag.reasons
    fields = ("batch_id", "planned_batch_id", "id_problem")
    known = {name: getattr(position, name) for name in fields}
    return {"query_id": position.query_id or None, **known, "sources": sources}


def _headline(position: CheckpointPosition) -> str:
    now_ms = epoch_ms()
    text = f"query [bold]{escape(position.query_id or 'unknown')}[/bold]\n"
    if position.id_problem is not None:
        text += f"{escape(position.id_problem)}\n"
    if position.batch_id is None:
        text += "no batch is committed yet"
    else:
        text += f"batch {position.batch_id} committed {when(position.committed_at_ms, now_ms)}"
    if position.planned_batch_id is not None:
        planned = when(position.planned_at_ms, now_ms)
        text += f"\nbatch {position.planned_batch_id} planned {planned}, and not committed"
    return text


def _table(position: CheckpointPosition, lags: list[SourceLag] | None) -> FittedTable:
    columns = _COLUMNS if lags is not None else _COLUMNS[:_WITHOUT_LAG]
    rows = (
        row
        for number, source in enumerate(position.sources)
        for row in _rows(
            source, source.source in position.kafka, lags[number] if lags is not None else None
        )
    )
    return FittedTable(columns, [row[: len(columns)] for row in rows])


def _rows(
    source: SourcePosition, is_kafka: bool, lag: SourceLag | None
) -> Iterator[list[str | Text]]:
    processed, planned = source.processed or {}, source.planned or {}
    latest, behind, reasons = (lag.latest, lag.lag, lag.reasons) if lag else ({}, {}, {})
    topics = sorted(processed.keys() | planned.keys())
    if not topics:
        why = "no topic" if is_kafka else "not a Kafka source"
        unused = [""] * (len(_COLUMNS) - 2)
        yield [str(source.source), Text(why, style="dim"), *unused]
    for topic in topics:
        at, to = processed.get(topic, {}), planned.get(topic, {})
        for partition in sorted(at.keys() | to.keys()):
            yield [
                str(source.source),
                plain(topic),
                str(partition),
                records(at.get(partition)),
                f"{to[partition]:,}" if partition in to else "",
                records(latest.get(topic, {}).get(partition)),
                records(behind.get(topic, {}).get(partition)),
                plain(reasons.get(topic, {}).get(partition, "")),
            ]
