"""The file of bearer tokens: their hashes, scopes and limits."""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import secrets
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from sparklag_schemas import SettingsError
from sparklag_schemas.runtime.reloading import Reloaded
from sparklag_schemas.settings import SCOPES, HttpGrantSettings
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.access.principals import Principal

PREFIX: Final = "sparklag_"
"""Scanners of secrets find tokens by it."""
_RANDOM_BYTES: Final = 32
"""As many as the hash has: such a token cannot be guessed from its hash, without a salt."""
_CHECK_S: Final = 1.0
"""How often the file is looked at."""


class Token(
    HttpGrantSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One token, and what it grants. Times are epoch milliseconds."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$")]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    created_at: int
    expires_at: int | None = None


class _Document(Struct, frozen=True, forbid_unknown_fields=True):
    tokens: list[Token]

    def __post_init__(self) -> None:
        if len({token.name for token in self.tokens}) < len(self.tokens):
            raise ValueError("two tokens have the same name")


def digest(token: str) -> str:
    """The hash under which the file has a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def read_tokens(path: Path) -> list[Token]:
    """Raises SettingsError, in one line without the content."""
    expected = "expected what `sparklag tokens create` writes"
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Document).tokens
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", None) or error
        raise SettingsError(f"tokens file {path}: {cause}; {expected}") from error


def create_token(
    path: Path,
    name: str,
    scopes: Sequence[str],
    queries: Sequence[str],
    clusters: Sequence[str],
    expires_at: int | None,
) -> str:
    """Add a token to the file, and return it: only its hash is kept. Raises SettingsError."""
    tokens = read_tokens(path) if path.exists() else []
    text = PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
    if any(token.name == name for token in tokens):
        raise SettingsError(f"tokens file {path} has a token {name!r} already: revoke it first")
    fields = {"name": name, "scopes": scopes, "queries": queries, "clusters": clusters}
    times = {"created_at": epoch_ms(), "expires_at": expires_at}
    try:
        checked = msgspec.convert(fields | times | {"sha256": digest(text)}, Token)
    except msgspec.ValidationError as error:
        reason = str(error).partition(" - at ")[0]
        raise SettingsError(
            f"token {name!r:.200}: {reason}; the scopes are {', '.join(SCOPES)}, a name has"
            " letters, digits and ._@-"
        ) from error
    _write(path, [*tokens, checked])
    return text


def revoke_token(path: Path, name: str) -> None:
    """Remove a token from the file. Raises SettingsError."""
    tokens = read_tokens(path)
    left = [token for token in tokens if token.name != name]
    if len(left) == len(tokens):
        names = ", ".join(token.name for token in tokens) or "none"
        raise SettingsError(f"tokens file {path} has no token {name!r:.200}; it has: {names}")
    _write(path, left)


def _write(path: Path, tokens: Sequence[Token]) -> None:
    """Replace the file at once: a service that reads it meanwhile has the old or the new one."""
    content = msgspec.json.format(msgspec.json.encode(_Document(list(tokens))), indent=1)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # Only its owner may read it.
        with open(temporary, "xb", opener=partial(os.open, mode=0o600)) as file:
            file.write(content + b"\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SettingsError(f"tokens file {path} cannot be written: {error.strerror}") from error


class TokenFile:
    """Authenticates tokens by the file."""

    def __init__(self, file: str) -> None:
        """Raises SettingsError."""
        self._tokens = Reloaded(partial(read_tokens, Path(file)), [file])
        self._principals: dict[str, tuple[Token, Principal]] = {}
        """By the hash of the token."""
        self._check_at_s = 0.0
        self._update(self._tokens.value)

    async def authenticate(self, credential: str) -> Principal | None:
        """The holder of a token that is known and not expired."""
        if time.monotonic() >= self._check_at_s:
            self._check_at_s = math.inf  # one at a time, however long it takes
            try:
                self._update(await asyncio.to_thread(self._tokens.refresh))
            finally:
                self._check_at_s = time.monotonic() + _CHECK_S
        # The time of the lookup tells nothing about any token: only its hash is compared.
        _, principal = self._principals.get(digest(credential), (None, None))
        return None if principal is None or principal.has_ended() else principal

    def _update(self, tokens: Sequence[Token]) -> None:
        before, self._principals = self._principals, {}
        for token in tokens:
            known, principal = before.get(token.sha256, (None, None))
            if principal is None or known != token:
                principal = Principal(token.name, [token], expires_at=token.expires_at)
            self._principals[token.sha256] = token, principal
        for sha256, (_, principal) in before.items():
            # Ends the open streams of the token.
            principal.is_revoked = principal is not self._principals.get(sha256, (None, None))[1]
