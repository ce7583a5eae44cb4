"""Words of a newer minor version: every part of the service goes on with them, and shows them."""

from __future__ import annotations

import json

from msgspec.structs import replace

from sparklag_schemas import LagEvent, decode_lag_event, decode_observation, encode
from sparklag_schemas.messages.enumerations import mark
from sparklag_schemas.presentation import sentences
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.cli import tail
from sparklag_service.history.rows import pack, row_of, unpack
from sparklag_service.publishing.published_query import PartitionChanges
from sparklag_service.tracking.query_state import restored
from sparklag_service.view.view import Entry, View
from tests.messages import lag_event, observation
from tests.service.metrics.scraped import exposed, settings
from tests.service.states import States, evaluated, offsets_at, state

WORDS = {
    "status": "DREAMING",
    "origin": "telepathy",
    "cause": "whim",
    "activity": "resting",
    "measured_by": "oracle",
}


def event_of_tomorrow() -> LagEvent:
    """As read from `consumer-lag`, with a word in each place that today's version does not have."""
    event = lag_event(**WORDS)
    (topic,) = event.topics
    (partition,) = topic.partitions
    partition = replace(partition, status="SLEEPING", time_lag_method="guessed", time_lag_s=3.0)
    topic = replace(topic, partitions=[partition])
    return decode_lag_event(encode(replace(event, topics=[topic])))


def test_the_view_has_the_event_and_its_document() -> None:
    event, view = event_of_tomorrow(), View()
    assert view.put(Entry(event, encode(event), 0.0, 0, 0))
    (entry,) = view.find("orders")
    assert {name: getattr(entry.event, name) for name in WORDS} == WORDS
    assert {name: json.loads(entry.document)[name] for name in WORDS} == WORDS


async def test_metrics_have_them_as_labels() -> None:
    text = await exposed(settings(), event_of_tomorrow())
    assert 'status="DREAMING"' in text
    assert 'origin="telepathy"' in text
    assert 'measured_by="oracle"' in text
    # Whether a batch runs is not known: there is no number for it.
    assert "sparklag_query_running{" not in text


def test_people_see_them() -> None:
    event, now_ms = event_of_tomorrow(), epoch_ms()
    assert mark(event.status) == "warn"
    assert sentences.status(event, now_ms).startswith("DREAMING")
    assert "telepathy" in dict(sentences.lines(event, now_ms))["observed"]
    assert "DREAMING" in tail._line(event)
    assert "whim" in tail._line(event)


def test_the_history_counts_an_unknown_status_as_unknown() -> None:
    (row,) = unpack(pack(row_of(event_of_tomorrow())))
    assert row.status == "UNKNOWN"


def test_a_partition_record_has_them() -> None:
    (change,) = PartitionChanges(60.0).due(event_of_tomorrow(), 0.0)
    assert change.record is not None
    assert change.record.status == "SLEEPING"
    assert change.record.query_status == "DREAMING"


def test_a_driver_of_tomorrow_is_measured_and_its_words_are_published() -> None:
    words = {"origin": "telepathy", "cause": "whim", "activity": "resting"}
    tracker = States()
    driver = decode_observation(encode(observation(**words)))
    assert tracker.observe(driver, offset=1)
    event = evaluated(tracker.queries[driver.query_id], offsets_at({0: 70}), cause=driver.cause)
    assert {name: getattr(event, name) for name in words} == words
    assert (event.status, event.total_lag) == ("OK", 65)


def test_a_query_is_adopted_from_an_event_of_tomorrow() -> None:
    adopted = restored(event_of_tomorrow())
    assert (adopted.origin, adopted.activity, adopted.ended) == ("telepathy", "resting", False)
    assert evaluated(adopted, offsets_at({0: 70})).status == "OK"
    assert state().origin == "listener"
