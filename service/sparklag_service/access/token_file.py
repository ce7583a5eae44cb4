"""The file of bearer tokens: their hashes, scopes and limits."""

from __future__ import annotations

import asyncio
import hashlib
import logging
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
from sparklag_schemas.settings import SCOPES, Scope
from sparklag_schemas.settings.section import check_patterns
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.access.principals import Principal

_log = logging.getLogger(__name__)
PREFIX: Final = "sparklag_"
"""Scanners of secrets find tokens by it."""
_RANDOM_BYTES: Final = 32
"""As many as the hash has: such a token cannot be guessed from its hash, without a salt."""
_CHECK_S: Final = 1.0
"""How often the file is looked at."""


class Token(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One token. Times are epoch milliseconds."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$")]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1)]
    queries: tuple[str, ...] = ()
    """Regular expressions of whole names or ids. Empty: all."""
    clusters: tuple[str, ...] = ()
    """Aliases. Empty: all."""
    created_at: int
    expires_at: int | None = None

    def __post_init__(self) -> None:
        check_patterns(self.queries, "queries")


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
    except OSError as error:
        raise SettingsError(f"tokens file {path}: {error.strerror}; {expected}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"tokens file {path}: {error}; {expected}") from error


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
        raise SettingsError(
            f"token {name!r:.200}: {error}; the scopes are {', '.join(SCOPES)}, a name has letters,"
            " digits and ._@-"
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


def file_version(path: Path) -> object:
    """Differs whenever the file has changed."""
    try:
        status = path.stat()
    except OSError as error:
        return error.errno
    return (status.st_mtime_ns, status.st_ino, status.st_size)


class TokenFile:
    """Authenticates tokens by the file, which is read again when it changes. Where it cannot be
    read any more, its last content stays in force."""

    def __init__(self, path: Path) -> None:
        """Raises SettingsError."""
        self._path = path
        self._version: object = None
        self._principals: dict[Token, Principal] = {}
        self._by_digest: dict[str, Principal] = {}
        self._check_at_s = 0.0
        self._reload()

    async def authenticate(self, credential: str) -> Principal | None:
        """The holder of a token that is known and not expired."""
        if time.monotonic() >= self._check_at_s:
            self._check_at_s = time.monotonic() + _CHECK_S
            try:
                await asyncio.to_thread(self._reload)
            except SettingsError as error:
                _log.error("%s; the tokens that were read before stay in force", error)
        # The time of the lookup tells nothing about any token: only its hash is compared.
        principal = self._by_digest.get(digest(credential))
        return None if principal is None or principal.has_ended() else principal

    def _reload(self) -> None:
        """Raises SettingsError for each change to a file that cannot be read."""
        version = file_version(self._path)
        if version == self._version:
            return
        before, self._version = self._principals, version
        tokens = read_tokens(self._path)
        self._principals = {token: before.get(token) or _principal(token) for token in tokens}
        self._by_digest = {token.sha256: p for token, p in self._principals.items()}
        for token, principal in before.items():
            # Ends the open streams of the token.
            principal.is_revoked = token not in self._principals
        _log.info("tokens file %s has %d tokens", self._path, len(tokens))


def _principal(token: Token) -> Principal:
    return Principal(
        token.name, token.scopes, token.queries, token.clusters, expires_at=token.expires_at
    )
