"""What a name means while queries that share it come and go, on a real broker."""

from __future__ import annotations

import pytest

from tests.messages import moved, seen
from tests.second_client import SecondClient
from tests.service.conftest import RunningService

pytestmark = pytest.mark.kafka


async def test_a_query_that_another_of_its_name_has_followed_says_so_as_long_as_it_is_dead(
    service: RunningService, second_client: SecondClient, topic_name: str
) -> None:
    second_client.create(topic_name, 1)
    old, new = seen(topic_name, {0: 0}), seen(topic_name, {0: 0})
    service.observe(old)
    await service.shows(old.query_id, lambda e: e.status == "OK", "the first is there")
    service.observe(seen(topic_name, {0: 0}, query_id=old.query_id, cause="terminated"))
    ended = await service.shows(old.query_id, lambda e: e.status == "FINISHED", "it has ended")
    assert ended.superseded_by is None
    service.observe(new)
    followed = await service.shows(
        old.query_id, lambda e: e.superseded_by is not None, "the second has its name"
    )
    assert followed.superseded_by == new.query_id
    assert service.published(old.query_id)[-1] == followed
    assert (await service.shows(new.query_id, lambda e: True, "it")).superseded_by is None
    service.observe(moved(old, {0: 0}, after_ms=60_000))
    await service.shows(
        old.query_id,
        lambda e: (e.status, e.superseded_by) == ("OK", None),
        "the first is alive again",
    )
