"""Server-Sent Events as they are read: in any pieces, and bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklag_service.cli.sse_client import EventDecoder, EventTooLarge, ServerSentEvent

STREAM = (
    b"retry: 2000\n\nid: -\n\n: a comment\nid: 3:7\nevent: lag\ndata: {}\n\n"
    b"data: first\ndata:second\n\nevent: empty\n\nid: 3:8\nevent: gap\ndata: x\n\n"
    b"id: 9:9\ndata: cut"
)


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@given(cuts=st.lists(st.integers(0, 2 * len(STREAM))))
def test_the_same_events_come_of_any_pieces(line_end: bytes, cuts: list[int]) -> None:
    stream = STREAM.replace(b"\n", line_end)
    decoder = EventDecoder()
    ends = [*sorted(cuts), len(stream)]
    pieces = [stream[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    assert [event for piece in pieces for event in decoder.feed(piece)] == [
        ServerSentEvent("lag", b"{}"),
        ServerSentEvent("message", b"first\nsecond"),
        ServerSentEvent("gap", b"x"),
    ]
    assert (decoder.last_id, decoder.retry_s) == ("3:8", 2.0)


def test_an_event_that_a_cut_left_unfinished_is_dropped() -> None:
    decoder = EventDecoder()
    assert list(decoder.feed(b"id: 1:1\ndata: a\n\nid: 1:2\ndata: b")) == [("message", b"a")]
    decoder.reset()
    assert list(decoder.feed(b"data: c\n\n")) == [("message", b"c")]
    assert decoder.last_id == "1:1"


@pytest.mark.parametrize("piece", [b"x" * 60, b"data: " + b"x" * 40 + b"\n"])
def test_an_event_without_an_end_is_refused_before_it_fills_memory(piece: bytes) -> None:
    decoder = EventDecoder(max_bytes=100)
    assert list(decoder.feed(piece)) == []
    with pytest.raises(EventTooLarge, match="more than 100 bytes"):
        list(decoder.feed(piece * 2))


@given(st.binary())
def test_any_bytes_are_read(stream: bytes) -> None:
    for event in EventDecoder().feed(stream):
        assert event.data or event.kind


def test_the_service_cannot_ask_for_a_pause_of_hours() -> None:
    decoder = EventDecoder()
    list(decoder.feed(b"retry: 99999999999\nretry: soon\n\n"))
    assert decoder.retry_s == 30.0
