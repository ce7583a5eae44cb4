"""`sparklag tail`"""

from __future__ import annotations

import asyncio
import sys
from contextlib import closing
from datetime import datetime
from shutil import get_terminal_size
from typing import Annotated, Final

import msgspec
import typer
from rich.cells import cell_len
from rich.text import Text

from sparklag_kafka.access import explain_error, quiet_client_logs
from sparklag_kafka.clients.consumer import ContractConsumer
from sparklag_kafka.clients.contract_records import ContractRecords, shown
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_schemas import ContractError, LagEvent, ResolvedSettings, decode_lag_event
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.messages.query_names import ids_with_prefix
from sparklag_schemas.rest_interface import path_segment
from sparklag_schemas.service_access import ServiceAccess
from sparklag_schemas.text.formatting import records
from sparklag_schemas.text.printable import printable
from sparklag_service.cli.requests import decoded, service_at
from sparklag_service.cli.sse_client import follow
from sparklag_service.cli.terminal import (
    BootstrapServers,
    Config,
    Json,
    ascii_json,
    kafka_settings,
    print_error,
)
from sparklag_service.counters import Refusals
from sparklag_service.errors import ServiceError

_NAME_WIDTH: Final = 24
_MIN_NAME_WIDTH: Final = 10
_STATUS_WIDTH: Final = 9
_MIN_REASON_WIDTH: Final = 12


def tail(
    query: Annotated[
        str | None,
        typer.Argument(help="Only this query, by its name, id or first characters of the id."),
    ] = None,
    count: Annotated[
        int, typer.Option("-n", min=0, help="Exit after so many events; 0: never.")
    ] = 0,
    url: Annotated[
        str | None,
        typer.Option("--url", help="A running service: read its live stream instead of Kafka."),
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Follow lag events as they are published.

    From Kafka: those that come from now on. With --url: the newest of each query first, and after a
    lost connection those that were missed. Standard error says that it waits, and what is missing.
    """
    output = _Output(count, json=json)
    if url is None:
        settings = kafka_settings(config, bootstrap_servers)
        quiet_client_logs()
        asyncio.run(_follow_topic(settings, query, output))
    elif bootstrap_servers is not None:
        raise typer.BadParameter("excludes --bootstrap-servers", param_hint="--url")
    else:
        _follow_stream(service_at(url, config), query, output)


class _Output:
    """Standard output: a line for each event."""

    def __init__(self, count: int, *, json: bool) -> None:
        self._left = count
        self._json = json

    def print(self, event: LagEvent, document: bytes) -> bool:
        """Print an event with its JSON `document`. Returns True if it is the last of `count`."""
        width = get_terminal_size().columns if sys.stdout.isatty() else None
        typer.echo(ascii_json(document) if self._json else _line(event, width))
        self._left -= 1
        return self._left == 0


async def _follow_topic(settings: ResolvedSettings, query: str | None, output: _Output) -> None:
    contract_records = ContractRecords(
        LagEvent, settings.lag_topic, settings, MessageFormats(settings), _PrintedRefusals()
    )
    consumer = ContractConsumer(settings, contract_records.refuse_batch, auto_offset_reset="latest")
    consumer.subscribe([settings.lag_topic])
    try:
        async with consumer:
            whose = "" if query is None else f" of query {query}"
            where = f"topic {settings.lag_topic} of {settings.bootstrap_servers}"
            print_error(f"waiting for lag events{whose} on {where}")
            async for record in consumer:
                if record.value is None:
                    continue
                await contract_records.learn([record])
                event = contract_records.decoded(record)
                if event is None or (query is not None and not _is_of(event, query)):
                    continue
                if output.print(*shown(event, record)):
                    return
    except BrokenPipeError:  # the reader of this output ended
        raise
    except KAFKA_FAILURES as error:
        cause = await explain_error(error, settings.access)
        raise ServiceError(f"Kafka at {settings.bootstrap_servers}: {cause}") from error


def _is_of(event: LagEvent, query: str) -> bool:
    return query == event.query or bool(ids_with_prefix(query, [event.query_id]))


class _PrintedRefusals(Refusals):
    def add(self, topic: str, kind: str, what: str, query_id: str | None) -> None:
        print_error(f"skipped a {what}")


class _Gap(msgspec.Struct):
    since: str
    reason: str


class _Forgotten(msgspec.Struct):
    query_id: str


def _follow_stream(service: ServiceAccess, query: str | None, output: _Output) -> None:
    path = "/stream" if query is None else f"/lag/{path_segment(query)}/stream"
    with closing(follow(service, path, print_error)) as events:
        for kind, data in events:
            if kind == "lag":
                try:
                    if output.print(decode_lag_event(data), data):
                        return
                except ContractError as error:
                    print_error(f"skipped an event: {error}")
            elif kind == "gap":
                gap = decoded(data, _Gap, service.url)
                print_error(f"events after {gap.since} are missing: {gap.reason}")
            elif kind == "forgotten":
                print_error(f"query {decoded(data, _Forgotten, service.url).query_id} is forgotten")
                if query is not None:
                    return


def _line(event: LagEvent, width: int | None = None) -> str:
    """The event in one line; in a terminal of `width` the parts that fit, numbers uncut. Pure."""
    time = datetime.fromtimestamp(event.measured_at / 1000).strftime("%H:%M:%S.%f")[:-3]
    name, status, cause = map(printable, (event.display_name, event.status, event.cause))
    lag = f" lag {records(event.total_lag):>12}"
    worst = f"  worst {records(event.max_lag):>12}"
    why = f"  {printable(event.reason)}" if event.reason else ""
    if width is None:
        return f"{time}  {name:<{_NAME_WIDTH}} {status:<{_STATUS_WIDTH}}{lag}{worst}  {cause}{why}"
    free = width - len(f"{time}   {lag}") - _STATUS_WIDTH
    name_width = max(_MIN_NAME_WIDTH, min(_NAME_WIDTH, free))
    line = f"{time}  {_cell(name, name_width)} {_cell(status, _STATUS_WIDTH)}{lag}"
    free -= name_width
    for part in (worst, f"  {cause}"):
        if cell_len(part) <= free:
            line += part
            free -= cell_len(part)
    return line + _cell(why, free) if why and free >= _MIN_REASON_WIDTH else line


def _cell(text: str, width: int) -> str:
    cell = Text(text)
    cell.truncate(width, overflow="ellipsis", pad=True)
    return cell.plain
