"""JSON Web Tokens: the keys of their issuer, and their holders."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, Final, TypeVar

import httpx
import msgspec
from joserfc import jws
from joserfc.errors import BadSignatureError, JoseError
from joserfc.jwk import JWKRegistry, Key, KeySet
from joserfc.jwt import JWTClaimsRegistry
from msgspec import Meta, Struct

from sparklag_schemas.settings import SCOPES, HttpGrantSettings, HttpJwtSettings, SecureUrl
from sparklag_schemas.text.printable import printable
from sparklag_service.access.principals import Principal

_log = logging.getLogger(__name__)
_Document = TypeVar("_Document")
_Jwks = dict[str, list[dict[str, Any]]]
_MAX_BYTES: Final = 512 * 1024
_REQUEST_S: Final = 5.0
_REFRESH_S: Final = 300.0
RETRY_S: Final = 10
_UNKNOWN_KEY_S: Final = 30.0
"""A flood of tokens with unknown keys makes a request to the issuer this often."""
_LEEWAY_S: Final = 60
_VERIFIED: Final = 1_000
_ALGORITHMS: Final = [f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)]
"""No symmetric one, by which the issuer's public key would sign."""
_GRANTS: Final = {f"sparklag:{scope}": HttpGrantSettings(scopes=[scope]) for scope in SCOPES}
_NOT_VALID: Final = (JoseError, msgspec.MsgspecError, ValueError, TypeError, RecursionError)
"""What joserfc and msgspec raise for a malformed token or key."""


class IssuerAway(Exception):
    """The issuer's keys could not be read yet."""


class _Discovery(Struct):
    issuer: str
    jwks_uri: SecureUrl


class _Header(Struct):
    """Other members, which may bring a key (`jwk`, `jku`, `x5u`, `x5c`), are ignored."""

    alg: str
    kid: str
    typ: Annotated[str, Meta(pattern=r"^(?i:(application/)?(at\+)?jwt)$")] = "JWT"
    crit: None = None


class IssuerKeys:
    """The keys of an issuer, read every five minutes. While they cannot be read, the last ones stay
    in force."""

    def __init__(self, settings: HttpJwtSettings, on_change: Callable[[], object]) -> None:
        """Needs a running loop, on which it reads the keys."""
        self._settings = settings
        self._on_change = on_change
        self._keys = KeySet([])
        self._document: _Jwks = {}
        self._failure = ""
        self._unknown_key_s = -math.inf
        self._reading = asyncio.create_task(self._read())

    async def find(self, key_id: str, algorithm: str) -> Key:
        """The key with that id. Raises InvalidKeyIdError, IssuerAway."""
        # A reading that has begun may have begun before the key was there.
        for _ in range(2):
            if any(key.kid == key_id for key in self._keys):
                break
            is_due = time.monotonic() >= self._unknown_key_s + _UNKNOWN_KEY_S
            if self._keys and is_due and self._reading.done():
                self._unknown_key_s = time.monotonic()
                self._start()
            await asyncio.shield(self._reading)
        if not self._keys:
            raise IssuerAway("the keys of the tokens' issuer could not be read yet")
        return self._keys.get_by_kid(key_id, {"alg": algorithm, "use": "sig"})

    def _start(self) -> None:
        self._timer.cancel()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        failure = ""
        try:
            document = await asyncio.wait_for(self._fetch(), _REQUEST_S)
            if document != self._document:
                self._keys, self._document = KeySet(_usable(document)), document
                self._on_change()
        except Exception as error:  # whatever the issuer sends: the next reading must follow
            failure = printable(f"{type(error).__name__} {error}", 300)
        if failure and failure != self._failure:
            _log.error("the keys of %s cannot be read: %s", self._settings.issuer, failure)
        self._failure = failure
        delay_s = RETRY_S if failure else _REFRESH_S
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._start)

    async def _fetch(self) -> _Jwks:
        url, issuer = self._settings.jwks_url, str(self._settings.issuer)
        cafile = self._settings.ssl_cafile
        context = await asyncio.to_thread(ssl.create_default_context, cafile=cafile)
        # A compressed response has no bound.
        headers = {"accept-encoding": "identity"}
        async with httpx.AsyncClient(verify=context, headers=headers) as http:
            if url is None:
                address = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
                discovery = await _get(http, address, _Discovery)
                if discovery.issuer != issuer:
                    raise ValueError(f"{address} is of issuer {discovery.issuer}")
                url = discovery.jwks_uri
            return await _get(http, url, _Jwks)


async def _get(http: httpx.AsyncClient, url: str, kind: type[_Document]) -> _Document:
    body = bytearray()
    async with http.stream("GET", url) as response:
        if response.status_code != 200:
            raise ValueError(f"{url} responds with status {response.status_code}")
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > _MAX_BYTES:
                raise ValueError(f"{url} responds with more than {_MAX_BYTES} bytes")
    return msgspec.json.decode(body, type=kind)


def _usable(document: _Jwks) -> list[Key]:
    """The public keys of 2,048 bits or more. Raises ValueError without any."""
    keys: list[Key] = []
    for jwk in document.get("keys", ()):
        with suppress(*_NOT_VALID):
            is_weak = jwk.get("kty") == "RSA" and len(jwk.get("n", "")) * 6 < 2_048
            if isinstance(jwk.get("kid"), str) and jwk.get("kty") != "oct" and not is_weak:
                keys.append(JWKRegistry.import_key(jwk))
    if not keys:
        raise ValueError("none is a public key with a kid")
    return keys


class JwtVerifier:
    """Authenticates the JWTs of an issuer."""

    def __init__(self, settings: HttpJwtSettings) -> None:
        """Needs a running loop."""
        self._claim, self._grants = settings.claim, settings.grants or _GRANTS
        self._registry = jws.JWSRegistry(algorithms=_ALGORITHMS, strict_check_header=False)
        self._claims = JWTClaimsRegistry(
            leeway=_LEEWAY_S,
            iss={"essential": True, "value": str(settings.issuer)},
            aud={"essential": True, "values": settings.audiences},
            exp={"essential": True},
        )
        self._verified: OrderedDict[bytes, Principal] = OrderedDict()
        """By the hash of the token, the latest used last."""
        self._keys = IssuerKeys(settings, on_change=self._verified.clear)

    async def authenticate(self, credential: str) -> Principal | None:
        """The subject of a valid JWT. Raises IssuerAway."""
        if credential.count(".") != 2:
            return None
        digest = hashlib.sha256(credential.encode()).digest()
        principal = self._verified.pop(digest, None)
        if principal is None:
            try:
                principal = await self._verify(credential)
            except _NOT_VALID as error:
                _log.info("a JWT is refused: %s", printable(str(error), 300))
                return None
        self._verified[digest] = principal
        if len(self._verified) > _VERIFIED:
            self._verified.popitem(last=False)
        return None if principal.has_ended() else principal

    async def _verify(self, credential: str) -> Principal:
        signed = jws.extract_compact(credential.encode(), registry=self._registry)
        header = msgspec.convert(signed.headers(), _Header)
        key = await self._keys.find(header.kid, header.alg)
        if not jws.validate_compact(signed, key, registry=self._registry):
            raise BadSignatureError
        claims = msgspec.json.decode(signed.payload, type=dict[str, Any])
        self._claims.validate(claims)
        name = next(filter(None, map(claims.get, ("sub", "client_id", "azp"))), None)
        if not isinstance(name, str):
            raise ValueError("it has no subject")
        name, ends_at = printable(name, 200), int(min(claims["exp"], 1e11)) * 1000
        values = claims.get(self._claim)
        # What is no list of texts grants nothing.
        values = values.split() if isinstance(values, str) else values
        values = values if isinstance(values, list) else []
        grants = [grant for value, grant in self._grants.items() if value in values]
        return Principal(name, grants, expires_at=ends_at)
