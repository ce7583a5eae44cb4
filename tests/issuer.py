"""A real OpenID Connect issuer on loopback: discovery, keys, a login without a page, and tokens for
REST and Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import unquote, urlencode

from joserfc.jwk import JWKRegistry, Key
from joserfc.jws import JWSRegistry
from joserfc.util import urlsafe_b64encode
from werkzeug import Request, Response
from werkzeug.utils import redirect

from sparklag_schemas import KafkaSettings
from tests.http_server import JSON, HttpServer

AUDIENCE = "sparklag"
CLIENT_SECRET = "ri:ght%+secret"
Sign = Callable[[bytes], bytes]


def new_key(kid: str, kind: Any = "EC", size: Any = "P-256", **parameters: Any) -> Key:
    return JWKRegistry.generate_key(kind, size, {"kid": kid, "use": "sig", **parameters})  # type: ignore[arg-type]  # a TypedDict


def _set(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


class Issuer(HttpServer):
    """`keys` are published. `intercept` may answer in its place."""

    def __init__(self, lifetime_s: float = 600, keys: Sequence[Key] = (), **options: Any) -> None:
        super().__init__(self._respond, **options)
        self.keys = list(keys or [new_key("1")])
        self.intercept: Callable[[str], Response | None] = lambda path: None
        self.claims_of_login: dict[str, Any] = {}
        self.issued = 0
        self._lifetime_s = lifetime_s
        self._login: dict[str, str] = {}

    def token(
        self, key: Key | None = None, header: Any = None, sign: Sign | None = None, **claims: Any
    ) -> str:
        """A token that is accepted, with changes; a claim or header of None is left out."""
        key, now_s = key or self.keys[0], time.time()
        claims = {
            "iss": self.url,
            "aud": [AUDIENCE, "kafka"],
            "sub": "alice",
            "exp": int(now_s + self._lifetime_s),
            "iat": int(now_s),
            "scope": "openid sparklag:lag",
            **claims,
        }
        if not isinstance(header, str | list):
            algorithm = "ES256" if key.key_type == "EC" else "RS256"
            header = _set({"alg": algorithm, "kid": key.kid, "typ": "at+jwt", **(header or {})})
        parts = [urlsafe_b64encode(json.dumps(part).encode()) for part in (header, _set(claims))]
        text = b".".join(parts)
        # Without the library's checks of what is signed.
        signature = sign(text) if sign else JWSRegistry.algorithms[header["alg"]].sign(text, key)
        return b".".join([text, urlsafe_b64encode(signature)]).decode()

    def _respond(self, request: Request) -> Response:
        if (answer := self.intercept(request.path)) is not None:
            return answer
        if request.path == "/moved":
            return redirect("/token")
        if request.path == "/authorize":
            self._login = request.args.to_dict()
            code = urlencode({"code": "code", "state": self._login["state"]})
            return redirect(f"{self._login['redirect_uri']}?{code}")
        if request.path == "/token":
            return self._issue(request)
        documents: dict[str, dict[str, Any]] = {
            "/.well-known/openid-configuration": {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "id_token_signing_alg_values_supported": ["ES256"],
            },
            "/keys": {"keys": [key.as_dict(private=False) for key in self.keys]},
        }
        return Response(json.dumps(documents[request.path]), content_type=JSON)

    def _issue(self, request: Request) -> Response:
        """Tokens by the code of the login, or by the grant of client credentials."""
        user, expected = request.authorization, ("sparklag", CLIENT_SECRET)
        if user is None or (user.username, unquote(user.password or "")) != expected:
            return Response('{"error": "invalid_client"}', 401, content_type=JSON)
        by_client = {"grant_type": "client_credentials", "scope": "write"}
        assert self._login or request.form.to_dict() == by_client
        self.issued += 1
        issued = {
            "access_token": self.token(),
            "token_type": "Bearer",
            "expires_in": self._lifetime_s,
            "id_token": self.token(nonce=self._login.get("nonce"), **self.claims_of_login),
        }
        return Response(json.dumps(issued), content_type=JSON)


class KafkaIssuer(Issuer):
    """An issuer for clients of brokers."""

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
