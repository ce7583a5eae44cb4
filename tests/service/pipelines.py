"""Pipelines that are not running."""

from __future__ import annotations

from functools import partial
from math import inf

from sparklag_schemas import Settings
from sparklag_service.intakes.topic import TopicIntake
from sparklag_service.pipeline import Pipeline


def pipeline_of(settings: Settings) -> Pipeline:
    """That of `sparklag serve`; where no brokers are set, one that is to ask none."""
    servers = settings.bootstrap_servers or "127.0.0.1:1"
    resolved = settings.resolved(servers)
    pipeline = Pipeline(resolved, partial(TopicIntake, resolved), "service")
    # Nothing measures: an event counts, however old it is.
    pipeline.view.late_after_s = inf
    return pipeline


def complete_pipeline_of(settings: Settings) -> Pipeline:
    pipeline = pipeline_of(settings)
    pipeline.view_reader.ready = None
    return pipeline
