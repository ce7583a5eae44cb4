"""Records arrive although the producer is replaced on the way."""

from __future__ import annotations

from functools import partial

import pytest
from confluent_kafka import KafkaError, Message

from tests.faults import lasting_producer
from tests.faults.lasting_producer import LastingProducer
from tests.second_client import SecondClient

_RECORDS = 100


@pytest.mark.kafka
def test_a_producer_that_stands_still_is_replaced(
    second_client: SecondClient, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    second_client.create(topic_name)
    offsets: dict[int, list[int | None]] = {number: [] for number in range(_RECORDS)}

    def delivered(number: int, error: KafkaError | None, message: Message) -> None:
        assert error is None
        offsets[number].append(message.offset())

    producer = LastingProducer(second_client.bootstrap_servers)
    first = producer._producer
    with monkeypatch.context() as patch:
        patch.setattr(lasting_producer, "_STUCK_S", -1.0)
        for number in offsets:
            producer.produce(partial(delivered, number), topic=topic_name, value=b"%d" % number)
        producer.poll()
    assert producer._producer is not first
    assert producer.flush(60.0)
    assert [len(told) for told in offsets.values()] == [1] * _RECORDS, "each is told of once"
    found = [offset for told in offsets.values() for offset in told if offset is not None]
    assert len(found) == _RECORDS
    assert found == sorted(found), "in their order"
