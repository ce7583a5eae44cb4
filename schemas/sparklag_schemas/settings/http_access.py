"""Settings of who may use the REST interface, and of how sparklag's own clients log in to it."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from sparklag_schemas.settings.section import Section

Scope = Literal["lag", "metrics", "offsets", "admin"]
SCOPES: Final[tuple[Scope, ...]] = ("lag", "metrics", "offsets", "admin")


class HttpTokenSettings(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bearer tokens of the REST interface."""

    file: str | None = None
    """The file that `sparklag tokens create` writes. It has hashes of the tokens, their scopes and
    limits, and is read again when it changes. None: no tokens."""
    requests_per_s: Annotated[float, Meta(gt=0)] = 100.0
    """Requests of one token, in bursts of ten seconds' worth; more get 429. Also the limit of a JWT
    subject. A tenth of it limits an address whose requests are refused."""
