"""The whole service inside the driver, on the listener's loop."""

from __future__ import annotations

import logging

from sparklag_schemas import Observation, ResolvedSettings
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_service.errors import PortInUse
from sparklag_service.intakes.in_process import DriverStats, InProcessIntake
from sparklag_service.pipeline import Pipeline
from sparklag_service.server import bind, run_until_http_ends

_log = logging.getLogger("sparklag")


async def serve_embedded(
    queue: NewestQueue[Observation], settings: ResolvedSettings, stats: DriverStats
) -> None:
    """Run the service on the driver's own queue until cancelled.

    A taken HTTP port is no reason to stop: another one is taken, and `stats.url` tells.
    """
    try:
        listening = bind(settings.http_host, settings.http_port)
    except PortInUse as error:
        listening = bind(settings.http_host, 0)
        _log.warning("sparklag: %s; took port %d", error, listening.getsockname()[1])
    host, port = listening.getsockname()[:2]
    stats.url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    pipeline = Pipeline(
        settings,
        lambda deliveries, *_: InProcessIntake(queue, stats, deliveries),
        "embedded",
    )
    await run_until_http_ends(pipeline, listening)
