"""The frames of the live stream, and what readers get from them."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from sparklag_schemas import Settings, encode
from sparklag_schemas.settings import LiveSettings
from sparklag_service.counters import Counters
from sparklag_service.live.hub import LiveHub
from sparklag_service.live.reader import Selection, Wire
from sparklag_service.live.sse import Frame, Ring, id_parts, lag, parse_id, with_id
from sparklag_service.view.feed import Arrival, Feed
from sparklag_service.view.view import Entry, View
from tests.messages import lag_event

PARTITIONS = 3


def test_an_id_is_the_offsets_in_it() -> None:
    offsets = {3: 1207, 0: 88}
    assert with_id(id_parts(offsets), b"") == b"id: 0:88,3:1207\n"
    assert parse_id("0:88,3:1207") == offsets
    assert with_id(id_parts({0: -1}), b"") == b"id: -\n"
    assert parse_id("-") == {}


def test_what_is_no_id_is_none() -> None:
    for text in ("", "x", "0", "0:", ":1", "0:1,", "0:-1", "0:1 ", "0:1\n", "9" * 40 + ":1"):
        assert parse_id(text) is None, text


def put(ring: Ring, query_id: str, partition: int, offset: int, size: int = 10) -> Frame:
    return ring.put(query_id, partition, offset, b"x" * size, is_last=False)


def offsets_since(ring: Ring, since: dict[int, int], partition: int | None = None) -> list[int]:
    frames = ring.since(since, partition)
    assert frames is not None
    return [frame.offset for frame in frames]


def test_it_holds_no_more_than_it_may_and_knows_what_it_lacks() -> None:
    ring = Ring(100_000)
    for offset in range(1_000):
        put(ring, "often" if offset % 100 else "rare", 0, offset, 1_000)
    assert ring.held_bytes <= 100_000
    assert 900 < ring.first < 1_000
    assert ring.since({0: ring.first - 2}, 0) is None
    assert offsets_since(ring, {0: ring.first - 1}, 0) == [*range(ring.first, 1_000)]
    assert offsets_since(ring, {0: 990}) == [*range(991, 1_000)]
    assert offsets_since(ring, {0: 999}) == []
    assert ring.since({0: 1_000}) is None


def test_summaries_count_among_what_it_holds() -> None:
    ring = Ring(100_000)
    document = lag(encode(lag_event()))
    for offset in range(1_000):
        ring.summary(ring.put("a", 0, offset, document, is_last=False))
    kept = ring.since({0: ring.first - 1}) or []
    assert ring.held_bytes == sum(frame.held_bytes for frame in kept)
    assert ring.held_bytes <= 100_000 + len(kept[-1].summary)
    assert len(kept[-1].summary) > len(kept[-1].text) / 2


def test_what_came_after_offsets_is_in_the_order_in_which_it_was_read() -> None:
    ring = Ring(100_000)
    ring.begin({0: 0, 1: 0})
    for partition, offset in ((0, 0), (1, 0), (1, 1), (0, 1), (1, 2)):
        put(ring, "a", partition, offset)
    assert offsets_since(ring, {0: 0, 1: 1}) == [1, 2]
    assert offsets_since(ring, {0: 0, 1: 1}, 1) == [2]
    assert offsets_since(ring, {}) == [0, 0, 1, 1, 2]


def test_a_frame_larger_than_all_of_it_is_still_reported() -> None:
    ring = Ring(1_000)
    put(ring, "a", 0, 0, 50_000)
    assert offsets_since(ring, {}) == [0]


def test_a_partition_that_is_read_anew_cannot_be_resumed_from_before() -> None:
    ring = Ring(100_000)
    for offset in range(10):
        put(ring, "a", 0, offset)
    ring.begin({0: 0})
    assert ring.since({0: 9}) is None
    put(ring, "a", 0, 0)
    assert ring.since({0: 9}) is None
    # None of the topic before is among them.
    assert offsets_since(ring, {}) == [0]
    ring.begin({0: 50})
    assert ring.since({0: 0}) is None
    assert offsets_since(ring, {0: 49}) == []


class Instance:
    def __init__(self) -> None:
        self.view = View()
        counters = Counters()
        self.hub = LiveHub(Settings(live=LiveSettings(resume_mb=1)), self.view, counters)
        self._feed = Feed(counters, self.hub)
        starts = dict.fromkeys(range(PARTITIONS), 0)
        self._feed.begin(starts, starts)

    def take(self, arrival: Arrival) -> None:
        if arrival.event is None:
            self.view.remove(arrival.query_id)
        else:
            self.view.put(
                Entry(arrival.event, arrival.document, 0.0, arrival.partition, arrival.offset)
            )
        self._feed.dispatch(arrival)

    def knows(self) -> dict[str, int | None]:
        return {entry.event.query_id: entry.event.total_lag for entry in self.view}


class Client:
    def __init__(self) -> None:
        self.knows: dict[str, int | None] = {}
        self.last_id: str | None = None

    def read(self, instance: Instance, most: int) -> None:
        """Read at most so many frames from a new connection."""
        with instance.hub.reader(Wire(), Selection(), self.last_id) as (reader, opening):
            output = b"".join(opening)
            while chunk := reader.take_chunk():
                output += chunk
        for frame in output.decode().split("\n\n")[:-1][:most]:
            fields = dict(line.split(": ", 1) for line in frame.split("\n"))
            self.last_id = fields.get("id", self.last_id)
            document = json.loads(fields.get("data", "null"))
            if fields.get("event") == "lag":
                self.knows[document["query_id"]] = document["total_lag"]
            elif fields.get("event") == "forgotten":
                self.knows.pop(document["query_id"], None)


queries = st.integers(0, 5)
steps = st.lists(
    st.tuples(queries, st.sampled_from(["small", "small", "large", "forget"])), max_size=40
)


@given(
    steps, st.lists(st.tuples(st.integers(0, 40), st.booleans(), st.integers(0, 12)), max_size=6)
)
@example([(0, "small")] * 3 + [(1, "small"), (0, "forget")], [(4, False, 2)])
def test_a_reader_of_several_instances_ends_with_what_they_know(
    steps: list[tuple[int, str]], visits: list[tuple[int, bool, int]]
) -> None:
    offsets = [0] * PARTITIONS
    topic: list[Arrival] = []
    for number, (query, kind) in enumerate(steps):
        partition = query % PARTITIONS
        event = None
        if kind != "forget":
            reason = "x" * (300_000 if kind == "large" else 10)
            event = lag_event(
                query_id=f"query-{query}", total_lag=number, reason=reason, measured_at=number
            )
        document = b"" if event is None else encode(event)
        topic.append(
            Arrival(f"query-{query}", partition, offsets[partition], number, event, document)
        )
        offsets[partition] += 1
    # One has read in the order of writing, the other partition by partition.
    first, second, client = Instance(), Instance(), Client()
    read = 0
    for until, is_first, most in sorted(visits):
        part, read = topic[read:until], max(read, min(until, len(topic)))
        for arrival in part:
            first.take(arrival)
        for arrival in sorted(part, key=lambda a: a.partition):
            second.take(arrival)
        client.read(first if is_first else second, most)
    for arrival in topic[read:]:
        first.take(arrival)
        second.take(arrival)
    client.read(second, 10_000)
    assert client.knows == second.knows() == first.knows()
