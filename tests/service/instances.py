"""The service as `sparklag serve` runs it, in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sparklag_schemas import Settings
from sparklag_service.instance_state import InstanceState
from sparklag_service.pipeline import Pipeline
from sparklag_service.server import bind, run_until_http_ends
from tests.background_task import background
from tests.service.pipelines import pipeline_of
from tests.waiting import nothing_is_left


@asynccontextmanager
async def instance(settings: Settings) -> AsyncIterator[tuple[Pipeline, int]]:
    """One with all that it has, and its port; ended as a driver ends an embedded one."""
    pipeline = pipeline_of(settings)
    listening = bind("127.0.0.1", 0)
    port = listening.getsockname()[1]
    async with background(run_until_http_ends(pipeline, listening)):
        await nothing_is_left(InstanceState(pipeline).not_ready, "the instance is ready")
        yield pipeline, port
