"""Messages that were not signed with the key are refused."""

from __future__ import annotations

import pytest

from sparklag_schemas import Settings
from sparklag_schemas.errors import WrongSignature
from sparklag_schemas.messages.headers import HEADER, Signatures
from sparklag_schemas.settings import SigningSettings, TeamKey

_OURS = Signatures(Settings(signing_key="right" * 4))


def test_without_a_key_nothing_is_signed_and_everything_accepted() -> None:
    unsigned = Signatures(Settings())
    assert unsigned.headers("topic", b"key", b"value") == []
    unsigned.check("topic", b"key", b"value", [])
    unsigned.check("topic", b"key", b"value", [(HEADER, b"anything")])


@pytest.mark.parametrize("value", [b"value", b"", None])
def test_a_signed_message_is_accepted(value: bytes | None) -> None:
    headers = [("ce_id", b"1"), *_OURS.headers("topic", b"key", value)]
    _OURS.check("topic", b"key", value, headers)


@pytest.mark.parametrize(
    ("topic", "key", "value"),
    [
        ("other", b"key", b"value"),
        ("topic", b"other", b"value"),
        ("topic", b"key", b"other"),
        ("topic", b"key", None),
        ("topic", b"key", b""),
        ("topick", b"ey", b"value"),
        ("topic", None, b"value"),
    ],
)
def test_a_signature_is_of_one_message(topic: str, key: bytes | None, value: bytes | None) -> None:
    headers = _OURS.headers("topic", b"key", b"value")
    with pytest.raises(WrongSignature):
        _OURS.check(topic, key, value, headers)


def test_another_key_and_no_signature_are_refused() -> None:
    theirs = Signatures(Settings(signing_key="wrong" * 4)).headers("topic", b"key", b"value")
    for headers in (theirs, [], [(HEADER, None)], [(HEADER, b"")]):
        with pytest.raises(WrongSignature):
            _OURS.check("topic", b"key", b"value", headers)


def test_the_key_of_a_team_signs_and_is_replaced_beside_that_of_the_service() -> None:
    team = TeamKey(key="new" * 6, accepted=["old" * 6], queries=["a-.*"])
    keys = SigningSettings(keys={"a": team})
    service = Signatures(Settings(signing_key="right" * 4, signing=keys))
    new, old = (Signatures(Settings(signing_key=key * 6)) for key in ("new", "old"))
    # The second record with one key is judged by the key of the first.
    for driver in (new, old, old, new):
        judged = service.check("t", b"k", b"v", driver.headers("t", b"k", b"v"))
        assert judged is not None
        assert judged.name == "a"
    for query, readers in (("a-1", [service, _OURS, new]), ("b-1", [service, _OURS])):
        headers = service.headers("t", b"k", b"v", query)
        assert {reader.check("t", b"k", b"v", headers) for reader in readers} == {None}
    with pytest.raises(WrongSignature):
        new.check("t", b"k", b"v", service.headers("t", b"k", b"v", "b-1"))


def test_a_key_can_be_changed_without_a_gap() -> None:
    before = Signatures(Settings(signing_key="old" * 6))
    between = Signatures(Settings(signing_key="new" * 6, accepted_signing_keys=["old" * 6]))
    for signs in (before, between):
        between.check("t", b"k", b"v", signs.headers("t", b"k", b"v"))
    with pytest.raises(WrongSignature):
        _OURS.check("t", b"k", b"v", between.headers("t", b"k", b"v"))
