"""The base of the settings' sections, and checks of their values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

from msgspec import Meta, Struct

from sparklag_schemas.messages.bounds import HTTP_URL
from sparklag_schemas.text.locations import redact_location, shown_url
from sparklag_schemas.text.redaction import HIDDEN

Seconds = Annotated[float, Meta(gt=0)]
SigningKey = Annotated[str, Meta(min_length=16)]
"""A shorter one can be guessed from one message."""
Port = Annotated[int, Meta(ge=0, le=65535)]
InstanceName = Annotated[
    str, Meta(pattern=r"^[!-~]{1,200}$", description="1 to 200 characters of ASCII, no space")
]
PageUrl = Annotated[
    str, Meta(pattern=HTTP_URL, description="http(s)://host[:port][/path], no query")
]
SecureUrl = Annotated[
    str,
    Meta(
        pattern=r"^(https://|http://(localhost|127\.0\.0\.1|\[::1\])[:/])[!-?A-~]+$",
        description="an https:// address (http:// on loopback alone), no user",
    ),
]
"""Others could read or change on the way what decides who logs in."""


def check_patterns(patterns: Iterable[str], of_what: str) -> None:
    """Raises ValueError for the first pattern that is not a regular expression."""
    for pattern in patterns:
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(
                f"{pattern!r:.200} is not a regular expression of {of_what}: {error}"
            ) from None


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings under one name."""

    def __repr__(self) -> str:
        """The values that are set, without secrets."""
        shown = ", ".join(
            f"{name}={shown_setting(name, value)!r}"
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not None
        )
        return f"{type(self).__name__}({shown})"


def shown_setting(name: str, value: Any) -> Any:
    """The value of a setting without secrets. `name` is the last part of the setting's name."""
    if not value:
        return value
    secrets = ("password", "client_secret", "signing_key", "signing_keys")
    if name.endswith(secrets) or name in ("key", "accepted", "token"):
        return HIDDEN
    if name == "storage":
        # fsspec's options: most of them are secrets.
        return dict.fromkeys(value, HIDDEN) if isinstance(value, dict) else HIDDEN
    if name.endswith(("url", "endpoint", "bootstrap_servers")) and isinstance(value, str):
        return shown_url(value)
    if name in ("locations", "follow", "checkpoints") and isinstance(value, list):
        return [redact_location(v) if isinstance(v, str) else HIDDEN for v in value]
    return value
