"""Pipelines that are not running."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any

from sparklag_schemas import Settings, encode
from sparklag_service.intakes.topic import TopicIntake
from sparklag_service.pipeline import Pipeline
from sparklag_service.view.view import Entry
from tests.messages import lag_event

OURS, THEIRS = "team-a-orders", "team-b-bills"
THEIR_ID = "b1111111-2222-3333-4444-555555555555"


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


def show(pipeline: Pipeline, **fields: Any) -> bytes:
    """Put an event with these fields into the view; returns its document."""
    event = lag_event(**fields)
    document = encode(event)
    pipeline.view.put(Entry(event, document, 0, 0, 0))
    return document


def teams_of(settings: Settings) -> Pipeline:
    """A complete one with a query of each of two teams, which nothing speaks of."""
    pipeline = complete_pipeline_of(settings)
    for query_id, query in (("a1", OURS), (THEIR_ID, THEIRS)):
        show(pipeline, query_id=query_id, query=query, status="FAILED")
    return pipeline
