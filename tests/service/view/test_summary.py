"""The summary of a lag event."""

from __future__ import annotations

import json

from scripts.message_examples import example_value
from sparklag_schemas import LagEvent, TopicLag, decode_lag_event
from sparklag_service.view.summary import summary, summary_of_document
from tests.messages import lag_event


def test_it_is_the_event_with_the_names_of_its_topics_in_place_of_their_partitions() -> None:
    document = json.loads(json.dumps(example_value(LagEvent)))
    event = decode_lag_event(json.dumps(document).encode())
    names = sorted({topic["topic"] for topic in document["topics"]})
    assert json.loads(summary(event)) == {**document, "topics": names}


def test_it_is_the_same_from_the_document_of_an_older_or_newer_writer() -> None:
    topics = [TopicLag(topic=name, source=0, partitions=[]) for name in ("b", "a", "b")]
    expected = summary(lag_event(topics=topics))
    written = json.dumps(
        {
            "event_id": "e7e7",
            "added_later": {"topics": 1},
            **{k: v for k, v in json.loads(expected).items() if v is not None},
            "topics": [{"topic": name, "source": 0, "partitions": []} for name in "bab"],
        }
    )
    assert summary_of_document(written.encode()) == expected
    assert json.loads(expected)["topics"] == ["a", "b"]
