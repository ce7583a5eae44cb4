"""The headers of sparklag's messages: CloudEvents in binary mode, and signatures. Pure."""

from __future__ import annotations

import hmac
import re
import struct
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote, unquote
from uuid import UUID

from sparklag_schemas.errors import WrongSignature, WrongTeam
from sparklag_schemas.messages.lag_event import LagEvent, PartitionRecord
from sparklag_schemas.messages.observation import Observation
from sparklag_schemas.settings import Settings
from sparklag_schemas.settings.clusters import NamePatterns

Headers = list[tuple[str, bytes]]
Header = tuple[str, bytes]
JSON: Final = "application/json"
AVRO: Final = "application/avro"
OBSERVATION_TYPE = "sparklag.observation.v1"
LAG_EVENT_TYPE = "sparklag.lag.v1"
PARTITION_TYPE = "sparklag.partition.v1"
TRACEPARENT = "traceparent"
OBSERVATION_SPAN = 2
"""The number of the observation's span in a batch's trace."""
_TRACEPARENT = re.compile(
    rb"00-(?!0{32})(?P<trace>[0-9a-f]{32})-(?!0{16})(?P<span>[0-9a-f]{16})-[0-9a-f][13579bdf]"
)
"""The header of a sampled trace."""


class SpanContext(NamedTuple):
    """A span of a batch's trace, with ids as W3C's Trace Context writes them."""

    trace_id: str
    span_id: str

    @property
    def header(self) -> Header:
        """The header of the record that the span is about."""
        return TRACEPARENT, f"00-{self.trace_id}-{self.span_id}-01".encode()

    def span(self, number: int) -> SpanContext:
        """The span of the same trace with this number, from 1. Its ids are deterministic: a trace
        that is rebuilt after a failure has the same spans."""
        return SpanContext(self.trace_id, f"{self.trace_id[:15]}{number}")


def batch_trace(observation: Observation) -> SpanContext | None:
    """The context of an observation, from its id. None: it is not about a completed batch."""
    if observation.cause != "progress":
        return None
    try:
        trace_id = UUID(observation.observation_id).hex
    except ValueError:
        return None
    return SpanContext(trace_id, "").span(OBSERVATION_SPAN)


def received_trace(headers: Iterable[tuple[str, bytes | None]]) -> SpanContext | None:
    """The context in a record's headers. None: there is none, or it is not sampled."""
    for name, value in headers:
        if name == TRACEPARENT and value is not None and (match := _TRACEPARENT.fullmatch(value)):
            return SpanContext(match["trace"].decode(), match["span"].decode())
    return None


def observation_headers(
    observation: Observation, content_type: str = JSON, *, traced: bool = False
) -> Headers:
    """Headers of a message on `processed-offsets`."""
    source = f"/sparklag/{observation.cluster}/driver/{observation.run_id}"
    time_ms, query_id = observation.observed_at, observation.query_id
    headers = _headers(
        observation.observation_id, OBSERVATION_TYPE, source, time_ms, query_id, content_type
    )
    if traced and (context := batch_trace(observation)) is not None:
        headers.append(context.header)
    return headers


def lag_event_headers(
    event: LagEvent, content_type: str = JSON, group_id: str | None = None
) -> Headers:
    """Headers of a message on `consumer-lag`. `group_id`: of the service that measured it."""
    source = f"/sparklag/{event.cluster}/service"
    if group_id is not None:
        source += f"/{quote(group_id, safe='')}"
    return _headers(
        event.event_id, LAG_EVENT_TYPE, source, event.measured_at, event.query_id, content_type
    )


def group_of_source(headers: Iterable[tuple[str, bytes | None]]) -> str | None:
    """The group id of the service that wrote a lag event. None: an embedded or older service."""
    source = next((value for name, value in headers if name == "ce_source"), None)
    return unquote((source or b"").partition(b"/service/")[2].decode(errors="replace")) or None


def partition_headers(
    record: PartitionRecord, key: str, cluster: str, content_type: str = JSON
) -> Headers:
    """Headers of a message on `consumer-lag-partitions`; `cluster` is that of its lag event."""
    event_id, source = f"{record.event_id}/{key}", f"/sparklag/{cluster}/service"
    return _headers(event_id, PARTITION_TYPE, source, record.measured_at, key, content_type)


def _headers(
    event_id: str, event_type: str, source: str, time_ms: int, subject: str, content_type: str
) -> Headers:
    seconds, milliseconds = divmod(time_ms, 1_000)
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", event_id.encode()),
        ("ce_source", source.encode()),
        ("ce_type", event_type.encode()),
        ("ce_time", f"{_second(seconds)}.{milliseconds:03d}Z".encode()),
        ("ce_subject", subject.encode()),
        ("content-type", content_type.encode()),
    ]


@lru_cache(maxsize=64)  # messages of one pass have the same second or two
def _second(epoch_s: int) -> str:
    return datetime.fromtimestamp(epoch_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


HEADER: Final = "sparklag-signature"
_LENGTHS: Final = struct.Struct(">QQ")
_MOST_SIGNATURES: Final = 16
_CACHED: Final = 10_000
_SPARK_ID: Final = re.compile(r"[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}", re.ASCII)


class Team(NamedTuple):
    """A team of `signing.keys`."""

    name: str
    may_report: Callable[[str], bool]

    def check(self, query_id: str, *names: str | None) -> None:
        """Raises WrongTeam where one of the names of a query is of others; without any, its id."""
        # An id that is not of Spark's form may be the name of another query.
        own_id = None if any(names) and _SPARK_ID.fullmatch(query_id) else query_id
        for name in (*names, own_id):
            if name is not None and not self.may_report(name):
                raise WrongTeam(f"the key of team {self.name} may not report query {name}")


class Signatures:
    """Signs written records and checks those that were read, if a key is set."""

    def __init__(self, settings: Settings) -> None:
        own = (settings.signing_key, *settings.accepted_signing_keys)
        self._keys: list[tuple[bytes, Team | None]] = [
            (key.encode(), None) for key in own if key is not None
        ]
        self._signers = self._keys[:1]
        for name, keys in settings.signing.keys.items():
            team = Team(name, NamePatterns(keys.queries, ()).select)
            self._signers.append((keys.key.encode(), team))
            self._keys += [(key.encode(), team) for key in (keys.key, *keys.accepted)]
        self._last: dict[int, tuple[bytes, Team | None]] = {}
        """The key of the last message, by the hash of the record key."""

    def headers(
        self, topic: str, key: bytes, value: bytes | None, query: str | None = None
    ) -> Headers:
        """The headers to add to a record; none without a key. A record about `query`, a name or an
        id, is also signed with the key of its team, for drivers that have no other key."""
        return [
            (HEADER, _digest(secret, topic, key, value))
            for secret, team in self._signers
            if team is None or (query is not None and team.may_report(query))
        ]

    def check(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]],
    ) -> Team | None:
        """The team whose key has signed the record. None: it may report every query. Raises
        WrongSignature where keys are set and none of them has signed the record."""
        if not self._keys:
            return None
        signatures = [value for name, value in headers if name == HEADER and value is not None]
        if not signatures:
            raise WrongSignature("it is not signed, and signing_key is set here")
        # Of several signatures the service's own counts, with which the keys begin.
        last = self._last.get(hash(key)) if len(signatures) == 1 else None
        for signer in self._keys if last is None else (last, *self._keys):
            digest = _digest(signer[0], topic, key or b"", value)
            if any(hmac.compare_digest(digest, each) for each in signatures[:_MOST_SIGNATURES]):
                if len(self._last) > _CACHED:
                    self._last.clear()
                self._last[hash(key)] = signer
                return signer[1]
        raise WrongSignature("its signature is of another key, or of another message")


def _digest(secret: bytes, topic: str, key: bytes, value: bytes | None) -> bytes:
    name = topic.encode()
    signed = hmac.new(secret, _LENGTHS.pack(len(name), len(key)) + name + key, "sha256")
    # A tombstone differs from an empty value.
    signed.update(b"\0" if value is None else b"\1")
    signed.update(value or b"")
    return signed.hexdigest().encode()
