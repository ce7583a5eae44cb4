"""An instance of the service that is not running: what it would serve can be read from it."""

from __future__ import annotations

from functools import partial

from sparklag_schemas import Settings
from sparklag_service.instance_state import InstanceState
from sparklag_service.intakes.topic import TopicIntake
from sparklag_service.pipeline import Pipeline


def idle_instance() -> InstanceState:
    """With default settings, and brokers that it does not ask."""
    settings = Settings().resolved("127.0.0.1:1")
    return InstanceState(Pipeline(settings, partial(TopicIntake, settings), "service"))
