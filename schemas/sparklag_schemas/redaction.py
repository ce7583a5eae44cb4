"""Takes secrets out of foreign text: exceptions and locations. Pure.

It removes more than it recognises: the value of what is named like a secret, the user and query of
a URL, and what looks random. A lost word of an error costs less than a leak.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, Literal, TypeVar

import msgspec

from sparklag_schemas.lag_event import LagEvent, TopicLag
from sparklag_schemas.observation import Observation
from sparklag_schemas.printable import printable

HIDDEN: Final = "***"
_MAX_TEXT: Final = 1_000
"""Characters. The rest of a text is dropped: patterns take quadratic time at worst."""
_MAX_LOCATION: Final = 4_000
_MAX_REASONS: Final = 50
"""Distinct reasons of one event's partitions, numbers aside. Honest events have a few."""
_FIRST_LINE: Final = 300

_NAME: Final = (
    r"(?<![\w.\-])(?![\w.]*(?:Exception|Error)\b)"
    # Parts of a name, wherever in it they are.
    r"(?:[\w.\-]{0,60}?(?:passw(?:or[dt]|d)|passphrase|passcode|secret|token"
    # Kafka's own text for a wrong password.
    r"|credential(?!s with SASL mechanism (?:PLAIN|SCRAM-SHA-\d{3}|GSSAPI|OAUTHBEARER)\b)"
    r"|private[._ -]?key|api[._ -]?key|access[._ -]?key|account[._ -]?key|shared[._-]?access"
    r"|client[._ -]?key|signing[._ -]?key|encryption[._ -]?key|master[._ -]?key|license[._ -]?key"
    r"|[._-]key(?!\.\w{0,10}serializer)|signature|jaas[._-]?config|authorization|basic[._-]?auth"
    r"|user[._]info|cookie|connection[._-]?string|conn[._-]?str|webhook|nonce)[\w.\-]{0,60}"
    # Whole words, since they are parts of many.
    r"|(?:[\w.\-]{1,40}[._-]|-D|(?<=%)[0-9A-F]{2})?"
    r"(?:pwd|pw|pass|sig|sas|auth|pat|pin|psk|dsn|hmac|otp|salt)(?![A-Za-z])"
    r"|key(?=[\"']?\s{0,3}[:=])(?!\W{1,4}[\w.\-]{0,60}(?:passw|secret|token|key)))"
)
_TO: Final = r"[\"'\])\\]{0,4}(?:\s{1,3}(?:is|was|has|with)\b)?"
_QUOTED: Final = (
    r"[^\w(\[]{0,8}?(?:'{3}.*?'{3}|\"{3}.*?\"{3}"
    r"|\\?\"(?:[^\"\\]|\\.)*(?:\"|$)|\\?'(?:[^'\\]|\\.)*(?:'|$))(?!\s*[:=])"
)
# A value without quotes ends where the next name begins, or the line does: it may hold anything.
_OPEN: Final = (
    r"\W{1,12}[^\n]*?(?=[,;&|\s)\]}]{1,8}[\"'\[{(]?[A-Za-z][\w.\-]{0,60}[\"']?\s{0,8}(?:=|:\s|->)"
    r"|[)\]}>]{0,8}\s{0,8}(?:\n|$))"
)

_PEM: Final = re.compile(r"-----BEGIN [^-\n]*-----.*?(?:-----END [^-\n]*-----|\Z)", re.DOTALL)
_TAGGED: Final = re.compile(rf"(<({_NAME})\b[^>]*>)[^<]*", re.IGNORECASE)
_NAMED: Final = re.compile(rf"({_NAME}{_TO})(?:{_QUOTED}|{_OPEN})", re.IGNORECASE)
_OPTION: Final = re.compile(r"(?<!\S)(-[uap]|--user)(?:\s+|=)\S+|(?<!\S)(-p)\S+")
_WITH_KEY: Final = re.compile(r"(\b(?:using|with)(?: the)? key )\S+", re.IGNORECASE)
_ENCODED: Final = re.compile(r"(%2F%2F)\S*?(?=%40)", re.IGNORECASE)
_DIGEST: Final = re.compile(r"(\bresponse=)\"[^\"]*\"")
_SCHEME: Final = re.compile(
    r"\b((?:Bearer|Basic|Digest|Negotiate|ApiKey|SharedKey|AWS4-HMAC-SHA256)\s+)[^\s,;\"']+",
    re.IGNORECASE,
)
_USER: Final = re.compile(
    r"(?<=//)(?:[^/\s\"'<>]{0,500}|[^/\s\"'<>:]{0,200}:(?!\d+/)[^\s\"'<>]{0,500})@"
)
_BARE_USER: Final = re.compile(r"(?<![\w/.\-])[\w.\-]{1,60}[:/][^\s@/\"'<>]{1,200}@(?=[\w\[/])")
_QUERY: Final = re.compile(r"(\b[A-Za-z][\w+.\-]*:/[^\s\"'<>?#]*[?#])[^\s\"'<>]+")
_PREFIXED: Final = re.compile(
    r"\b(?:A[KS]IA[A-Z0-9]{12,}|eyJ[\w\-=.]+|gh[pousr]_\w+|github_pat_\w+|glpat-[\w\-]+"
    r"|xox[a-z]-[\w\-]+|sk-[\w\-]{16,}|[srp]k_(?:live|test)_\w+|AIza[\w\-]{20,}|ya29\.[\w\-]+"
    r"|dapi[0-9a-f]{16,}(?:-\d)?|SG\.[\w\-.]{20,}|hvs\.[\w\-]+|npm_\w{20,}|hf_\w{20,})"
)
_TOKEN: Final = re.compile(r"[A-Za-z0-9+/=_\-]{20,}")
_PYTHON: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S)")
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_NUMBER: Final = re.compile(r"(?<![\w.+/=-])\d{1,19}(?![\w+/=-])")
_RANDOM: Final = 0.35
"""Changes between capitals, small letters and digits for each character. In words, paths and names
of classes it is below 0.3; in random text 0.45 or more."""

_CONTAINER_FIRST: Final = ("abfs://", "abfss://", "wasb://", "wasbs://")
"""Azure's: what stands before `@` is no user there."""
_PASSWORD: Final = re.compile(r"(?<=://)([^/@:]*):[^/@]*@")
_NO_PORT: Final = re.compile(r":(?!\d{1,5}(?:,|$))[^:,\]]+(?=,|$)")
"""Where the host was forgotten this is a password."""

PublishExceptions = Literal["redacted", "type", "none"]
Message = TypeVar("Message", bound=Observation | LagEvent)


def redact(text: str) -> str:
    """The first 1,000 characters of `text`, without what may be a secret in it."""
    if len(text) > _MAX_TEXT:
        # Half of a word may be half of a secret, and the `@` behind it is what tells.
        words = text[:_MAX_TEXT].rsplit(maxsplit=1)
        text = f"{words[0]} {HIDDEN}" if len(words) > 1 else HIDDEN
    return _redact(text)


@lru_cache(1_024)
def _redact(text: str) -> str:
    text = _PEM.sub(HIDDEN, text)
    text = _USER.sub(f"{HIDDEN}@", text)
    text = _BARE_USER.sub(f"{HIDDEN}@", text)
    text = _QUERY.sub(rf"\1{HIDDEN}", text)
    text = _SCHEME.sub(rf"\1{HIDDEN}", text)
    text = _TAGGED.sub(rf"\1{HIDDEN}", text)
    text = _OPTION.sub(lambda match: f"{match[1] or match[2]} {HIDDEN}", text)
    text = _WITH_KEY.sub(rf"\1{HIDDEN}", text)
    text = _ENCODED.sub(rf"\1{HIDDEN}", text)
    text = _DIGEST.sub(rf"\1{HIDDEN}", text)
    text = _NAMED.sub(rf"\1={HIDDEN}", text)
    text = _PREFIXED.sub(HIDDEN, text)
    return _TOKEN.sub(_without_random, text)


@lru_cache(1_024)
def redact_location(location: str) -> str:
    """A path or URL without user, query and fragment."""
    location = location[:_MAX_LOCATION]
    if location.lower().startswith(_CONTAINER_FIRST):
        location = _PASSWORD.sub(r"\1@", location)
    else:
        location = _USER.sub("", location)
    return _QUERY.sub(lambda match: match[1][:-1], location)


def shown_url(url: str) -> str:
    """A URL of a server without a password, or options that may hold one.

    Stricter than `redact_location`: in a path a colon and an `@` may be names.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        # A scheme was forgotten: all of it may be a password.
        scheme, rest = "", url
    # All before the last @: passwords may be unescaped, and users may have an @.
    credentials, at, host_and_path = rest.rpartition("@")
    user, colon, _ = credentials.partition(":")
    hidden = f"{user}:{HIDDEN}@" if colon else user + at
    hosts, slash, path = re.split("[?#]", host_and_path)[0].partition("/")
    return f"{scheme}{separator}{hidden}{_NO_PORT.sub(f':{HIDDEN}', hosts)}{slash}{path}"


def exception_line(text: str, publish: PublishExceptions) -> str | None:
    """The part of an exception's text that may leave the driver, by `publish_exceptions`: its first
    line, redacted and cut, or the type alone. Of a Python traceback it is the last line."""
    if publish == "none":
        return None
    raised = _PYTHON.search(text)
    text = (text[raised.start(1) :] if raised is not None else text).strip()
    if publish == "type":
        type_name = re.match(r"[\w.$]+", text)
        return type_name[0] if type_name is not None else "exception"
    # Redacted as a whole: a value may begin on the first line and end on another.
    first = redact(text).splitlines() or [""]
    return printable(first[0], _FIRST_LINE)


class _PartitionReasons:
    """Redacts the reasons of an event's partitions. Most of thousands differ in numbers only."""

    def __init__(self) -> None:
        self._clean: set[str] = set()
        self._left = _MAX_REASONS

    def redact(self, reason: str) -> str:
        """HIDDEN after too many distinct reasons: each takes up to 5 ms."""
        template = _NUMBER.sub("0", reason)
        if template in self._clean:
            return reason
        if self._left == 0:
            return HIDDEN
        self._left -= 1
        if redact(template) == template:
            self._clean.add(template)
            return reason
        return redact(reason)


def redacted(message: Message) -> Message:
    """The message without what may be a secret; the message itself where there is none."""
    changed: dict[str, Any] = {}
    if message.exception is not None:
        changed["exception"] = redact(message.exception)
    if message.checkpoint_location is not None:
        changed["checkpoint_location"] = redact_location(message.checkpoint_location)
    if isinstance(message, LagEvent):
        for name in ("reason", "catch_up_reason"):
            reason = getattr(message, name)
            changed[name] = None if reason is None else redact(reason)
        reasons = _PartitionReasons()
        changed["topics"] = [_redacted_topic(topic, reasons) for topic in message.topics]
    changed = {name: value for name, value in changed.items() if value != getattr(message, name)}
    return msgspec.structs.replace(message, **changed) if changed else message


def _redacted_topic(topic: TopicLag, reasons: _PartitionReasons) -> TopicLag:
    safe = {
        index: reason
        for index, partition in enumerate(topic.partitions)
        if partition.reason is not None
        and (reason := reasons.redact(partition.reason)) != partition.reason
    }
    if not safe:
        return topic
    partitions = list(topic.partitions)
    for index, reason in safe.items():
        partitions[index] = msgspec.structs.replace(partitions[index], reason=reason)
    return msgspec.structs.replace(topic, partitions=partitions)


def _without_random(match: re.Match[str]) -> str:
    token = match[0]
    if _UUID.search(token) or not any(character in "0123456789+=" for character in token):
        return token
    classes = [_class_of(character) for character in token if character.isalnum()]
    changes = sum(before != after for before, after in pairwise(classes))
    return HIDDEN if changes >= _RANDOM * len(token) else token


def _class_of(character: str) -> int:
    return 0 if character.isdigit() else 1 if character.isupper() else 2
