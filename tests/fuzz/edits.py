"""What may become of bytes and documents on their way, by accident or on purpose."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any, Final

from hypothesis import strategies as st

Path = tuple[Any, ...]
"""Keys and indices."""

_PIECES = (
    b"",
    b"\0",
    b"\xff" * 8,
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\xed\xa0\x80",
    b"\n",
    b"-1",
    b"9223372036854775808",
    b"1e999",
    b"NaN",
    b"null",
    b'"\\ud800"',
    b"[" * 2_000,
    b'{"a":' * 2_000,
    b"9" * 5_000,
)

NUMBERS = (-(2**63) - 1, -(2**63), -1, 0, 1, 2**31, 2**63 - 1, 2**63, 10**400, 0.5, -0.0, 1e308)
TEXTS = (
    "",
    "\0",
    "a\nb",
    "\x1b[2J",
    "\u202eKO",
    "\u2028",
    "\ud800",
    "{}[]%s{query}",
    "../../etc/passwd",
    "-" * 300,
    "x" * 20_000,
    "0001-01-01T00:00:00.000Z",
    "9999-12-31T23:59:59.999Z",
    "KafkaV2[Subscribe[]]",
    "KafkaV2[Assign[a-99999999999]]",
    "KafkaV2[SubscribePattern[" + "(a*)*" * 3_000 + "]]",
)
VALUES: Final[tuple[Any, ...]] = (
    *NUMBERS,
    *TEXTS,
    None,
    True,
    [],
    {},
    [[]],
    {"": {}},
    {"a": {"-1": 1}},
    [None] * 1_001,
)


def edited(seed: bytes) -> st.SearchStrategy[bytes]:
    edit = st.tuples(
        st.integers(0, len(seed)),
        st.integers(0, 64) | st.just(len(seed)),
        st.binary(max_size=8) | st.sampled_from(_PIECES),
    )

    def apply(edits: list[tuple[int, int, bytes]]) -> bytes:
        data = bytearray(seed)
        for at, left_out, put_in in edits:
            data[at : at + left_out] = put_in
        return bytes(data)

    return st.lists(edit, min_size=1, max_size=4).map(apply)


def changed(document: Any) -> st.SearchStrategy[Any]:
    """`document` with another value in one to three of its places, or without them."""
    places = [path for path, _ in places_in(document) if path]
    value = st.sampled_from(VALUES) | st.integers() | st.text(max_size=20)
    edit = st.tuples(st.sampled_from(places), value, st.booleans())

    def apply(edits: list[tuple[Path, Any, bool]]) -> Any:
        result = copy.deepcopy(document)
        for place, put_in, leave_out in edits:
            # An edit after this one may change what it put in.
            _change(result, place, copy.deepcopy(put_in), leave_out=leave_out)
        return result

    return st.lists(edit, min_size=1, max_size=3).map(apply)


def as_json(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")


def places_in(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Each place of a document, itself the first, with what is there."""
    yield path, value
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for name, part in items:
        yield from places_in(part, (*path, name))


def _change(document: Any, place: Path, put_in: Any, *, leave_out: bool) -> None:
    part = document
    try:
        for step in place[:-1]:
            part = part[step]
        if leave_out:
            del part[place[-1]]
        else:
            part[place[-1]] = put_in
    except (KeyError, IndexError, TypeError):
        # An edit before this one has taken the place away.
        return
