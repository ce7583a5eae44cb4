"""`sparklag check`"""

from __future__ import annotations

import asyncio

import typer
from rich.console import Console

from sparklag_kafka.clients.connection import quiet_client_logs
from sparklag_service.cli.diagnosis import diagnose
from sparklag_service.cli.markup import escape
from sparklag_service.cli.options import BootstrapServers, Config, kafka_settings


def check(bootstrap_servers: BootstrapServers = None, config: Config = None) -> None:
    """Say whether Kafka is reachable, the topics and the rights are there, and what to do."""
    settings = kafka_settings(config, bootstrap_servers)
    quiet_client_logs()
    findings = asyncio.run(diagnose(settings))
    console = Console(highlight=False, soft_wrap=True)
    for finding in findings:
        mark = "[green]ok [/green]" if finding.good else "[red]BAD[/red]"
        console.print(f"{mark} {escape(finding.text)}")
        if finding.remedy:
            console.print(f"    [dim]{escape(finding.remedy)}[/dim]")
    if not all(finding.good for finding in findings):
        raise typer.Exit(1)
