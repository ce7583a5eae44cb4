"""What a client logs in with: password, token and certificates, from files as they are now."""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
import time
from functools import cached_property, partial
from http.client import HTTPException
from typing import Annotated, Final
from urllib import request as http
from urllib.parse import quote, urlencode

import msgspec
from aiokafka.abc import AbstractTokenProvider

from sparklag_kafka.errors import LoginUnavailable
from sparklag_schemas.errors import SettingsError, install_command
from sparklag_schemas.runtime.reloading import Reloaded
from sparklag_schemas.settings import KafkaSettings
from sparklag_schemas.text.locations import shown_url
from sparklag_schemas.text.printable import printable
from sparklag_schemas.text.redaction import redact

TOKEN_MECHANISMS: Final = ("OAUTHBEARER", "AWS_MSK_IAM")
"""To the broker both are OAUTHBEARER."""
_MAX_BYTES: Final = 65_536
_RENEW_AFTER: Final = 0.8
"""The share of a token's lifetime for which logins use it. Sessions are renewed later than that."""
_TOKEN: Final = r"^[A-Za-z0-9._~+/-]+=*$"
_ERROR: Final = re.compile(rb'"error"\s*:\s*"([a-z_]{1,40})"')


class _Issued(msgspec.Struct):
    access_token: Annotated[str, msgspec.Meta(pattern=_TOKEN)]
    expires_in: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class Login(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """Of one client. Its methods raise LoginUnavailable, without any secret in the text."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._token, self._renew_at_s = "", 0.0
        self._requesting = asyncio.Lock()

    def ssl_context(self) -> ssl.SSLContext:
        """A new one once a file has changed."""
        return self._tls.refresh()

    @cached_property
    def _tls(self) -> Reloaded[ssl.SSLContext]:
        kafka = self._kafka
        files = (kafka.ssl_cafile, kafka.ssl_certfile, kafka.ssl_keyfile)
        return Reloaded(partial(_ssl_context, kafka), files)

    def password(self) -> str:
        return _secret(self._kafka, "sasl_password")

    async def token(self) -> str:
        """See aiokafka."""
        kafka = self._kafka
        is_aws = kafka.sasl_mechanism == "AWS_MSK_IAM"
        if kafka.sasl_oauthbearer_token_file and not is_aws:
            return _secret(kafka, "sasl_oauthbearer_token", _TOKEN)
        async with self._requesting:
            began_s = time.monotonic()
            if began_s >= self._renew_at_s:
                thread = asyncio.to_thread(_signed if is_aws else _issued, kafka)
                try:
                    issued = await asyncio.wait_for(thread, kafka.request_timeout_s)
                except (OSError, HTTPException, ValueError, asyncio.TimeoutError) as error:
                    source = shown_url(kafka.sasl_oauthbearer_token_endpoint_url or "AWS")
                    reason = getattr(error, "reason", None) or str(error) or "no answer in time"
                    text = printable(f"no token from {source}: {reason}", 500)
                    raise LoginUnavailable(text) from error
                self._token = issued.access_token
                self._renew_at_s = began_s + _RENEW_AFTER * issued.expires_in
            return self._token

    def forget_token(self) -> None:
        """The next login gets a new one."""
        self._renew_at_s = 0.0

    def extensions(self) -> dict[str, str]:
        """See aiokafka."""
        return self._kafka.sasl_oauthbearer_extensions


def _ssl_context(kafka: KafkaSettings) -> ssl.SSLContext:
    try:
        context = kafka.client_context("kafka")
    except SettingsError as error:
        raise LoginUnavailable(str(error)) from error
    context.check_hostname = kafka.ssl_check_hostname
    return context


def _secret(kafka: KafkaSettings, setting: str, pattern: str = ".") -> str:
    path = getattr(kafka, f"{setting}_file")
    if path is None:
        return str(getattr(kafka, setting))
    problem = "is empty, too long or malformed"
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_MAX_BYTES).strip()
        if len(text) < _MAX_BYTES and re.match(pattern, text):
            return text
    except (OSError, ValueError) as error:  # the text of a ValueError has the content
        problem = f"cannot be read: {getattr(error, 'strerror', 'it is not UTF-8')}"
    raise LoginUnavailable(f"kafka.{setting}_file: {path} {problem}")


def _issued(kafka: KafkaSettings) -> _Issued:
    """By client credentials (RFC 6749, 4.4). Raises OSError, HTTPException, ValueError."""
    client, form = kafka.sasl_oauthbearer_client_id or "", {"grant_type": "client_credentials"}
    if kafka.sasl_oauthbearer_scope:
        form["scope"] = kafka.sasl_oauthbearer_scope
    secret = _secret(kafka, "sasl_oauthbearer_client_secret")
    login = f"{quote(client, '')}:{quote(secret, '')}"
    request = http.Request(
        kafka.sasl_oauthbearer_token_endpoint_url or "",
        urlencode(form).encode(),
        {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"},
    )
    cafile = kafka.sasl_oauthbearer_cafile
    try:
        context = ssl.create_default_context(cafile=cafile)
    except OSError as error:  # it does not name the file
        raise OSError(f"sasl_oauthbearer_cafile {cafile}: {error}") from error
    # Nothing here follows a redirect: the secret is for this address alone.
    opener = http.OpenerDirector()
    for handler in (http.ProxyHandler(), http.HTTPHandler(), http.HTTPSHandler(context=context)):
        opener.add_handler(handler)
    with opener.open(request, timeout=kafka.request_timeout_s) as response:
        status, body = response.status, response.read(_MAX_BYTES)
    if status == 200:
        return msgspec.json.decode(body, type=_Issued, strict=False)
    reason = _ERROR.search(body)
    raise OSError(f"{reason[1].decode()} for {client!r}" if reason else f"status {status}")


def _signed(kafka: KafkaSettings) -> _Issued:
    """With the credentials of AWS's default chain. Raises OSError."""
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError as error:
        raise OSError(f"AWS_MSK_IAM needs {error.name}: {install_command('msk')}") from error
    try:
        token, expires_ms = MSKAuthTokenProvider.generate_auth_token(kafka.sasl_aws_region)
    except (BotoCoreError, ClientError, AttributeError) as error:
        # An AttributeError: the signer has got no credentials.
        is_none = isinstance(error, AttributeError)
        raise OSError("no credentials are found" if is_none else redact(str(error))) from error
    return _Issued(token, expires_ms / 1000 - time.time())
