"""Decodes the records of sparklag's topics, to which anybody may write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, Generic, Protocol, TypeVar

from aiokafka.structs import ConsumerRecord

from sparklag_schemas import ContractError, LagEvent, Observation, Settings, encode
from sparklag_schemas.avro.formats import MessageFormats, is_avro
from sparklag_schemas.errors import WrongPlace, WrongSignature
from sparklag_schemas.messages.bounds import MAX_NAME
from sparklag_schemas.messages.headers import Signatures, Team
from sparklag_schemas.messages.validation import MessageLimits, check_origin, in_time, redacted
from sparklag_schemas.runtime.queue import by_size
from sparklag_schemas.timestamps import epoch_ms

_CHUNK_BYTES = 256 * 1024
_LOG_APPEND_TIME: Final = 1
_MAX_KEY_BYTES: Final = 4 * MAX_NAME
"""UTF-8 takes up to 4 bytes for a character."""

Message = TypeVar("Message")
SafeMessage = TypeVar("SafeMessage", Observation, LagEvent)


class Refusals(Protocol):
    """Receives the messages that break the contract."""

    def add(self, topic: str, kind: str, what: str, query_id: str | None) -> None:
        """`kind`: see ContractError. `what`: which message, and why."""

    def known_name(self, query_id: str) -> str | None:
        """The name that drivers report for a query id; without a name, the id. None: not known."""


class ContractRecords(Generic[Message]):
    """Decodes the records of one topic. Records that break the contract go to `refusals`."""

    def __init__(
        self,
        message_type: type[Message],
        topic: str,
        settings: Settings,
        formats: MessageFormats,
        refusals: Refusals,
        *,
        written_as: type | None = None,
    ) -> None:
        self._reader = formats.reader(message_type, written_as)
        self._limits = MessageLimits(settings.limits)
        self._signatures = Signatures(settings)
        self._topic = topic
        self._refusals = refusals
        keeps_names = settings.signing.keys and topic == settings.lag_topic
        self._names: dict[str, str] | None = {} if keeps_names else None
        """Where `refusals` knows no name: the name in the last lag event, by query id."""
        self._most_names = settings.limits.queries

    async def chunks(
        self, records: Iterable[ConsumerRecord]
    ) -> AsyncIterator[list[ConsumerRecord]]:
        """The records in chunks that can be decoded without blocking the loop for long. Raises
        RegistryError: see `learn`."""
        for chunk in by_size(records, lambda record: len(record.value or b""), _CHUNK_BYTES):
            await self.learn(chunk)
            yield chunk

    async def learn(self, records: Iterable[ConsumerRecord]) -> None:
        """Fetch the schemas of the records with an accepted signature. Raises RegistryError where
        the schemas cannot be fetched yet."""
        await self._reader.learn(
            record.value
            for record in records
            if not self._reader.is_known(record.value) and self._is_signed(record)
        )

    def _is_signed(self, record: ConsumerRecord) -> bool:
        try:
            self._check_signature(record)
        except WrongSignature:
            return False
        return True

    def _check_signature(self, record: ConsumerRecord) -> Team | None:
        return self._signatures.check(self._topic, record.key, record.value, record.headers)

    def _known_name(self, query_id: str) -> str | None:
        return self._refusals.known_name(query_id) or (self._names or {}).get(query_id)

    def _check_team(self, team: Team | None, message: Any) -> None:
        query_id, name = message.query_id, message.query
        if team is not None:
            team.check(query_id, name, self._known_name(query_id))
        # The name that a checkpoint gives a query is that of a folder.
        if (names := self._names) is not None and message.run_id is not None:
            names[query_id] = name or query_id
            if len(names) > self._most_names:
                names.popitem()  # and no earlier one: a flood of ids would free known names

    def decoded(self, record: ConsumerRecord) -> Message | None:
        """The message in `record`; None where it is refused."""
        try:
            team = self._check_signature(record)
            message = self._reader.decode(record.value)
            self._limits.check(message, _written_at_ms(record))
            if isinstance(message, Observation):
                check_origin(message)
            self._check_team(team, message)
        except ContractError as error:
            self.refuse(record, error)
            return None
        return message

    def is_genuine(self, record: ConsumerRecord) -> bool:
        """Return whether the signature of a tombstone, which forgets a query, is accepted."""
        query_id = _query_of(record) or ""
        try:
            self.check_key(record, query_id, self._known_name(query_id))
        except ContractError as error:
            self.refuse(record, error)
            return False
        if self._names is not None:
            self._names.pop(query_id, None)
        return True

    def check_key(self, record: ConsumerRecord, query_id: str, name: str | None) -> None:
        """Raises WrongTeam where the key that signed `record` may not report this query, and
        WrongSignature."""
        if (team := self._check_signature(record)) is not None:
            team.check(query_id, name)

    def query_id(self, record: ConsumerRecord) -> str | None:
        """The query id in the key of `record`; None where it is refused."""
        query_id = _query_of(record)
        if query_id is None:
            self.refuse(record, WrongPlace(f"its key is no id of up to {MAX_NAME:,} characters"))
        return query_id

    def refuse(self, record: ConsumerRecord, error: ContractError) -> None:
        self._refusals.add(
            self._topic,
            error.kind,
            f"message at {record.topic}[{record.partition}]@{record.offset}: {error}",
            _query_of(record),
        )

    def refuse_batch(self, first: int, after: int, why: str) -> None:
        """Refuse the records of a batch that cannot be read: see ContractConsumer."""
        what = f"{after - first} messages of {self._topic}, at offsets from {first}"
        self._refusals.add(self._topic, "batch", f"{what}: {why}", None)


def safe(message: SafeMessage, record: ConsumerRecord) -> SafeMessage:
    """The message of `record` without secrets, with its version limited by `in_time`."""
    return redacted(in_time(message, _written_at_ms(record)))


def shown(event: LagEvent, record: ConsumerRecord) -> tuple[LagEvent, bytes]:
    """The event of `record` as `safe` returns it, and its JSON."""
    safe_event = safe(event, record)
    is_unchanged = safe_event is event and not is_avro(record.value)
    return safe_event, record.value if is_unchanged else encode(safe_event)


def _written_at_ms(record: ConsumerRecord) -> int:
    """The broker's timestamp if the topic has it; else now: a producer may set any timestamp."""
    if record.timestamp_type == _LOG_APPEND_TIME and record.timestamp is not None:
        return int(record.timestamp)
    return epoch_ms()


def _query_of(record: ConsumerRecord) -> str | None:
    key = record.key
    return None if key is None or len(key) > _MAX_KEY_BYTES else key.decode(errors="replace")
