"""An authorization server: signed tokens for client credentials, and the key to verify them."""

from __future__ import annotations

import json
import ssl
import time
from typing import Any, Final
from urllib.parse import unquote

from joserfc import jwt
from joserfc.jwk import RSAKey
from werkzeug import Request, Response

from sparklag_schemas import KafkaSettings
from tests.http_server import JSON, HttpServer

SECRET: Final = "ri:ght%+secret"


class TokenIssuer(HttpServer):
    def __init__(self, lifetime_s: float = 600, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(self._respond, tls=tls)
        self.issued = 0
        self._lifetime_s = lifetime_s
        self._key = RSAKey.generate_key(2048, {"kid": "1", "alg": "RS256", "use": "sig"})

    def token(self, **claims: Any) -> str:
        now_s = int(time.time())
        default = {"iss": self.url, "sub": "sparklag", "aud": "kafka", "iat": now_s}
        claims = {**default, "exp": now_s + int(self._lifetime_s), **claims}
        return jwt.encode({"alg": "RS256", "kid": "1"}, claims, self._key)

    def login(self, **fields: Any) -> KafkaSettings:
        endpoint = {
            "sasl_oauthbearer_token_endpoint_url": f"{self.url}/token",
            "sasl_oauthbearer_client_id": "sparklag",
            "sasl_oauthbearer_client_secret": SECRET,
            "sasl_oauthbearer_scope": "write",
            "sasl_oauthbearer_extensions": {"logicalCluster": "lkc-1"},
        }
        secured = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
        return KafkaSettings(**{**secured, **endpoint, **fields})

    def _respond(self, request: Request) -> Response:
        if request.path == "/jwks":
            keys = {"keys": [self._key.as_dict(private=False)]}
            return Response(json.dumps(keys), content_type=JSON)
        if request.path == "/moved":
            return Response(status=302, headers={"Location": f"{self.url}/token"})
        user = request.authorization
        if user is None or (user.username, unquote(user.password or "")) != ("sparklag", SECRET):
            return Response('{"error": "invalid_client"}', 401, content_type=JSON)
        assert request.form.to_dict() == {"grant_type": "client_credentials", "scope": "write"}
        self.issued += 1
        issued = {"access_token": self.token(), "expires_in": self._lifetime_s}
        return Response(json.dumps(issued), content_type=JSON)
