"""A query that is forgotten, or goes to another instance, leaves nothing of it in any stage."""

from __future__ import annotations

import gc
import types
from collections import deque
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from sparklag_schemas import Settings
from sparklag_schemas.messages.topics import key_of
from sparklag_service.pipeline import Pipeline
from tests.messages import lag_event, seen
from tests.second_client import SecondClient
from tests.service.conftest import running
from tests.service.pipelines import pipeline_of
from tests.service.states import moment
from tests.waiting import holds, nothing_is_left

_CONTAINERS = (dict, list, tuple, set, frozenset, deque)
_AFTER_VIEW = ("sparklag_service.history", "sparklag_service.live")
"""They remember tombstones: an older event of the query may be read again."""
_CALLABLES = (types.MethodType, types.FunctionType, types.CellType)


def parts_of(pipeline: Pipeline) -> Iterator[object]:
    """Every object of the service that the stages and Ownership reach."""
    waiting: list[object] = [pipeline.ownership, pipeline.tracked, pipeline.queue]
    known = {id(pipeline)}
    while waiting:
        part = waiting.pop()
        module = type(part).__module__
        is_ours = module.startswith("sparklag_service") and not module.startswith(_AFTER_VIEW)
        if id(part) in known or not (is_ours or isinstance(part, (*_CONTAINERS, *_CALLABLES))):
            continue
        known.add(id(part))
        yield part
        if isinstance(part, types.FunctionType):
            waiting += part.__closure__ or ()
        else:
            waiting += gc.get_referents(part)


def keepers(pipeline: Pipeline, query_id: str) -> dict[str, str]:
    """The containers that have the id of a query as a key or an element."""
    return {
        f"{type(part).__name__} at {id(part)}": f"{list(part)[:5]}"
        for part in parts_of(pipeline)
        if isinstance(part, _CONTAINERS)
        and any(each in (query_id, key_of(query_id)) for each in list(part))
    }


def test_every_stage_keeps_an_adopted_query_until_it_is_released() -> None:
    pipeline = pipeline_of(Settings(partition_records=True))
    event = lag_event()
    stages = (pipeline.tracking, pipeline.enricher, pipeline.evaluation, pipeline.publishing)
    for stage in stages:
        stage.adopt(event, moment())
    pipeline.enricher.request(pipeline.tracked[event.query_id])
    pipeline.evaluation._evaluator.thresholds_of(event.query, event.query_id)
    pipeline.tracked.failed(event, "evaluation", ValueError("bad"))
    assert len(keepers(pipeline, event.query_id)) >= 6
    for stage in stages:
        stage.release(event.query_id)
    assert keepers(pipeline, event.query_id) == {}


@pytest.mark.kafka
@pytest.mark.parametrize("partition_records", [False, True])
async def test_a_query_that_was_forgotten_is_in_no_container(
    service_settings: Settings, second_client: SecondClient, topic: str, partition_records: bool
) -> None:
    settings = replace(
        service_settings,
        keep_s=3.0,
        refresh_interval_s=0.2,
        partition_records=partition_records,
        partition_topic=f"{service_settings.lag_topic}-partitions",
    )
    ended = seen(topic, {0: 0}, cause="terminated")
    async with running(settings, second_client) as service:
        await service.measures(ended, 0)
        pipeline = service.pipeline
        assert keepers(pipeline, ended.query_id)
        await holds(lambda: pipeline.counters.tombstones, "the query is forgotten", 30)
        await holds(lambda: pipeline.view.get(ended.query_id) is None, "it is not shown")
        await nothing_is_left(lambda: keepers(pipeline, ended.query_id), "it is kept", 20)
        assert service.published(ended.query_id)[-1] is None
