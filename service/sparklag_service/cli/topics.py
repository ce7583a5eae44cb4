"""`sparklag topics`: creates the topics and schemas that sparklag needs."""

from __future__ import annotations

import asyncio

import msgspec
import typer

from sparklag_kafka.access import explain_error, quiet_client_logs
from sparklag_kafka.clients.topic_setup import create_missing
from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_schemas import ResolvedSettings
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.messages.topics import own_topics
from sparklag_service.cli.commands import CommandGroup
from sparklag_service.cli.terminal import BootstrapServers, Config, kafka_settings
from sparklag_service.errors import ServiceError

topics = typer.Typer(help="sparklag's own topics.", no_args_is_help=True, cls=CommandGroup)


@topics.command("create")
def create_topics(bootstrap_servers: BootstrapServers = None, config: Config = None) -> None:
    """Create the topics that are missing, with the settings they need; with format = "avro",
    register their schemas."""
    settings = kafka_settings(config, bootstrap_servers)
    quiet_client_logs()
    created, registered = asyncio.run(_create_and_register(settings))
    for spec in own_topics(settings):
        schema = ", its schema registered" if spec.name in registered else ""
        state = "created" if spec.name in created else "already there"
        typer.echo(f"{spec.name}: {state}{schema}")


async def _create_and_register(settings: ResolvedSettings) -> tuple[list[str], list[str]]:
    # This command may register schemas even if the service may not.
    may = msgspec.structs.replace(settings.registry, register=True)
    formats = MessageFormats(msgspec.structs.replace(settings, registry=may))
    try:
        created = await create_missing(settings.access, own_topics(settings))
    except KAFKA_FAILURES as error:
        cause = await explain_error(error, settings.access)
        raise ServiceError(f"Kafka at {settings.bootstrap_servers}: {cause}") from error
    return created, await formats.register()
