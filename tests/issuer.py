"""A real OpenID Connect issuer on loopback: discovery, keys, tokens, a login without a page."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlencode

from joserfc.jwk import JWKRegistry, Key
from joserfc.jws import JWSRegistry
from joserfc.util import urlsafe_b64encode
from werkzeug import Request, Response

from sparklag_schemas import KafkaSettings
from tests.http_server import JSON, HttpServer

AUDIENCE = "sparklag"
CLIENT_SECRET = "ri:ght%+secret"


def new_key(kid: str, kind: Any = "EC", size: Any = "P-256", **parameters: Any) -> Key:
    return JWKRegistry.generate_key(kind, size, {"kid": kid, "use": "sig", **parameters})  # type: ignore[arg-type]  # a TypedDict


def compact(header: Any, claims: Any, sign: Callable[[bytes], bytes]) -> str:
    parts = [urlsafe_b64encode(json.dumps(part).encode()) for part in (header, claims)]
    signature = urlsafe_b64encode(sign(b".".join(parts)))
    return b".".join([*parts, signature]).decode()


def _set(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


class Issuer(HttpServer):
    """`keys` are published. `intercept` may answer in its place; `resume` ends what hangs."""

    def __init__(self, *keys: Key, port: int = 0, **options: Any) -> None:
        super().__init__(self._respond, port, **options)
        self.keys = list(keys or [new_key("1")])
        self.intercept: Callable[[str], Response | None] = lambda path: None
        self.resume = threading.Event()
        self.claims_of_login: dict[str, Any] = {}
        self._nonce = ""

    def __exit__(self, *raised: Any) -> None:
        self.resume.set()
        super().__exit__(*raised)

    def token(self, key: Key | None = None, header: Any = None, **claims: Any) -> str:
        """A token that is accepted, with changes; a claim or header of None is left out."""
        key, now_s = key or self.keys[0], int(time.time())
        algorithm = {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}[key.key_type]
        header = {"alg": algorithm, "kid": key.kid, "typ": "at+jwt", **(header or {})}
        claims = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "alice",
            "exp": now_s + 60,
            "iat": now_s,
            "scope": "openid sparklag:lag",
            **claims,
        }
        # Without the library's checks of what is signed.
        model = JWSRegistry.algorithms[header["alg"]]
        return compact(_set(header), _set(claims), lambda text: model.sign(text, key))

    def requests_of_keys(self) -> int:
        return sum(request.path == "/keys" for request, _ in self.log)

    def _respond(self, request: Request) -> Response:
        if (answer := self.intercept(request.path)) is not None:
            return answer
        if request.path == "/authorize":
            self._nonce = request.args.get("nonce", "")
            back = urlencode({"code": "code", "state": request.args["state"]})
            return Response(
                status=302, headers={"location": f"{request.args['redirect_uri']}?{back}"}
            )
        documents: dict[str, dict[str, Any]] = {
            "/.well-known/openid-configuration": {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "id_token_signing_alg_values_supported": ["ES256"],
            },
            "/keys": {"keys": [key.as_dict(private=False) for key in self.keys]},
            "/token": {
                "access_token": "opaque",
                "token_type": "Bearer",
                "expires_in": 60,
                "id_token": self.token(nonce=self._nonce, **self.claims_of_login),
            },
        }
        return Response(json.dumps(documents[request.path]), content_type=JSON)


class KafkaIssuer(Issuer):
    """Issues tokens for brokers by the grant of client credentials."""

    def __init__(self, lifetime_s: float = 600, **options: Any) -> None:
        super().__init__(**options)
        self.issued = 0
        self._lifetime_s = lifetime_s

    def token(self, *_: Any, **claims: Any) -> str:
        expires_s = int(time.time() + self._lifetime_s)
        return super().token(**{"aud": "kafka", "exp": expires_s, **claims})

    def login(self, **fields: Any) -> KafkaSettings:
        """Settings that log in by the token endpoint, with changes."""
        by_token: dict[str, Any] = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": f"{self.url}/token",
            "sasl_oauthbearer_client_id": "sparklag",
            "sasl_oauthbearer_client_secret": CLIENT_SECRET,
            "sasl_oauthbearer_scope": "write",
            "sasl_oauthbearer_extensions": {"logicalCluster": "lkc-1"},
        }
        return KafkaSettings(**{**by_token, **fields})

    def _respond(self, request: Request) -> Response:
        if request.path == "/moved":
            return Response(status=302, headers={"Location": f"{self.url}/token"})
        if request.path != "/token":
            return super()._respond(request)
        user, expected = request.authorization, ("sparklag", CLIENT_SECRET)
        if user is None or (user.username, unquote(user.password or "")) != expected:
            return Response('{"error": "invalid_client"}', 401, content_type=JSON)
        assert request.form.to_dict() == {"grant_type": "client_credentials", "scope": "write"}
        self.issued += 1
        issued = {"access_token": self.token(), "expires_in": self._lifetime_s}
        return Response(json.dumps(issued), content_type=JSON)
