"""`sparklag tail`"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated

import typer

from sparklag_kafka.clients.client_options import explain_error, quiet_client_logs
from sparklag_kafka.clients.consumer import ContractConsumer
from sparklag_kafka.clients.contract_records import ContractRecords, shown
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_schemas import LagEvent, ResolvedSettings
from sparklag_schemas.formats import MessageFormats
from sparklag_schemas.formatting import records
from sparklag_schemas.printable import printable
from sparklag_schemas.query_ids import ids_with_prefix
from sparklag_service.cli.terminal import BootstrapServers, Config, Json, ascii_json, kafka_settings
from sparklag_service.counters import Refusals
from sparklag_service.errors import ServiceError


def tail(
    query: Annotated[
        str | None,
        typer.Argument(help="Only this query, by its name, id or first characters of the id."),
    ] = None,
    count: Annotated[int, typer.Option("-n", min=0, help="End after so many; 0: never.")] = 0,
    bootstrap_servers: BootstrapServers = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Follow lag events as they are published."""
    settings = kafka_settings(config, bootstrap_servers)
    quiet_client_logs()
    asyncio.run(_follow(settings, query, count, json))


async def _follow(settings: ResolvedSettings, query: str | None, count: int, json: bool) -> None:
    contract_records = ContractRecords(
        LagEvent, settings.lag_topic, settings, MessageFormats(settings), _PrintedRefusals()
    )
    consumer = ContractConsumer(settings, contract_records.refuse_batch, auto_offset_reset="latest")
    consumer.subscribe([settings.lag_topic])
    shown_count = 0
    try:
        await consumer.start()
        async for record in consumer:
            if record.value is None:
                continue
            await contract_records.learn([record])
            event = contract_records.decoded(record)
            if event is None or (query is not None and not _is_of(event, query)):
                continue
            event, document = shown(event, record.value)
            typer.echo(ascii_json(document) if json else _line(event))
            shown_count += 1
            if shown_count == count:
                return
    except BrokenPipeError:  # whoever reads this output has gone
        raise
    except KAFKA_FAILURES as error:
        cause = await explain_error(error, settings.access)
        raise ServiceError(f"Kafka at {settings.bootstrap_servers}: {cause}") from error
    finally:
        await consumer.stop()


def _is_of(event: LagEvent, query: str) -> bool:
    return query == event.query or bool(ids_with_prefix(query, [event.query_id]))


class _PrintedRefusals(Refusals):
    """Each is printed at once."""

    def add(self, topic: str, kind: str, what: str, query_id: str | None) -> None:
        typer.echo(f"sparklag: skipped a {printable(what)}", err=True)


def _line(event: LagEvent) -> str:
    time = datetime.fromtimestamp(event.measured_at / 1000).strftime("%H:%M:%S.%f")[:-3]
    why = f"  {printable(event.reason)}" if event.reason else ""
    name, status, cause = map(printable, (event.display_name, event.status, event.cause))
    return (
        f"{time}  {name:<24} {status:<9} lag {records(event.total_lag):>12}"
        f"  worst {records(event.max_lag):>12}  {cause}{why}"
    )
