"""The demo's numbers come from the topic."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from sparklag_pipeline.broker.local_kafka import LocalKafka
from sparklag_pipeline.demo.state import DemoState
from sparklag_pipeline.demo.topics import follow_lag
from sparklag_schemas import encode
from tests.pipeline.lag_events import lag_event
from tests.waiting import DEADLINE_S


@pytest.mark.kafka
async def test_it_waits_for_the_topic_and_reads_all_of_it(
    kafka: LocalKafka, topic_name: str
) -> None:
    state = DemoState(query="orders", started_at=0.0)
    feed = asyncio.create_task(follow_lag(kafka.bootstrap_servers, state, topic_name))
    try:
        await asyncio.to_thread(_publish_to_a_new_topic, kafka.bootstrap_servers, topic_name)
        await asyncio.wait_for(_all_is_read(state, feed), DEADLINE_S)
    finally:
        feed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await feed
    assert state.highest_lag == 7
    assert state.unreadable == 1


async def _all_is_read(state: DemoState, feed: asyncio.Task[None]) -> None:
    while state.last_lag != 2:
        assert not feed.done(), feed.result()
        await asyncio.sleep(0.05)


def _publish_to_a_new_topic(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": servers})
    for value in (
        encode(lag_event(lag=7, at=1)),
        b"no lag event",
        None,
        encode(lag_event(lag=2, at=2)),
    ):
        producer.produce(topic, value, b"key")
    assert producer.flush(30) == 0
