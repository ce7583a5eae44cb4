"""Explains why a store failed, without credentials.

Every store has its own errors, from packages that need not be installed: they are recognized by
class names and codes. Their texts are shown only where they are known to be harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sparklag_schemas.redaction import shown_url

_CODES: Final = {
    "NoSuchBucket": "there is no such bucket",
    "InvalidBucketName": "that is not the name of a bucket",
    "PermanentRedirect": "the bucket is in another region: set client_kwargs.region_name",
    "AuthorizationHeaderMalformed": "the bucket is in another region, or the credentials are wrong",
    "403": "no right to read there, or wrong credentials",
    "401": "credentials are wrong or missing",
    "InvalidAccessKeyId": "the credentials are wrong: the store does not know the access key",
    "SignatureDoesNotMatch": "the credentials are wrong: the secret does not fit the access key",
    "InvalidToken": "the credentials are wrong: the session token is not valid",
    "InvalidClientTokenId": "the credentials are wrong",
    "RequestExpired": "the credentials have expired, or the clock of this machine is wrong",
    "RequestTimeTooSkewed": "the clock of this machine differs too much from the store's",
    "SlowDown": "the store throttles requests",
    **dict.fromkeys(("AccessDenied", "AllAccessDisabled"), "no right to read there"),
    **dict.fromkeys(
        ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"),
        "the credentials have expired",
    ),
    **dict.fromkeys(("503", "ServiceUnavailable"), "the store is not available now"),
}
_NO_TOKEN: Final = "the credentials cannot be obtained, or have expired"
_CLASSES: Final = {
    "NoCredentialsError": "there are no credentials",
    "PartialCredentialsError": "the credentials are not complete",
    "ProfileNotFound": "the credentials' profile does not exist",
    "TokenRetrievalError": _NO_TOKEN,
    "CredentialRetrievalError": _NO_TOKEN,
    "RefreshError": _NO_TOKEN,
    "ClientAuthenticationError": "credentials are wrong or missing",
    "SSLError": "the store's certificate is not trusted, or it speaks no TLS",
    "PermissionError": "no right to read there",
    "NameResolutionError": "unknown host",
    "ParamValidationError": "the store does not accept this location",
}
_TIMEOUT: Final = re.compile(r"(FS|Connect|Read|Server)?Timeout(Error)?")
_UNREACHABLE: Final = re.compile(
    r"(Endpoint|New)?Connection(Refused|Closed|Reset)?Error|ClientConnector(DNS)?Error"
    r"|RemoteDisconnected|ServerDisconnectedError|gaierror|HTTPClientError"
)
_MIN_SECRET_LENGTH: Final = 4
_MAX_TEXT: Final = 160


def explain_store_failure(
    error: BaseException, options: Mapping[str, Any], timeout_s: float
) -> str | None:
    """One clause, or None where the store only reports that the file does not exist."""
    chain = list(_chain(error))
    for link in chain:
        code = _code(link)
        if code in _CODES:
            return f"{_CODES[code]} ({code})" if not code.isdigit() else _CODES[code]
    if isinstance(error, FileNotFoundError):
        return None
    for link in chain:
        for kind in type(link).__mro__:
            if _TIMEOUT.fullmatch(kind.__name__):
                return f"the store did not answer within {timeout_s:g} s"
            if kind.__name__ in _CLASSES:
                return _CLASSES[kind.__name__]
            if _UNREACHABLE.fullmatch(kind.__name__):
                return f"the store cannot be reached: no connection{_to_endpoint(options)}"
    for link in chain:
        code = _code(link)
        if code is not None:
            return f"the store answered {code[:_MAX_TEXT]}"
    if type(error) in (RuntimeError, ValueError):
        # WebHDFS: the text is the NameNode's.
        return _without_secrets(f"the store refused: {error}", options)
    if isinstance(error, TypeError):
        return "checkpoints.storage has an option that this kind of store does not take"
    return f"the store failed ({type(error).__name__})"


def _to_endpoint(options: Mapping[str, Any]) -> str:
    endpoint = options.get("endpoint_url") or options.get("webhdfs")
    return f" to {shown_url(endpoint)}" if isinstance(endpoint, str) else ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _code(error: BaseException) -> str | None:
    """The error code of a response: AWS's, or else the HTTP status."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        code = response.get("Error", {}).get("Code")
        return str(code) if code else None
    status = getattr(response, "status_code", None) or getattr(error, "status", None)
    code = getattr(error, "code", None)
    code = status or (code if isinstance(code, int | str) else None)
    return str(code) if code else None


def _without_secrets(text: str, options: Mapping[str, Any]) -> str:
    line = " ".join(text.split())
    for secret in _texts(options):
        if len(secret) >= _MIN_SECRET_LENGTH:
            line = line.replace(secret, "***")
    return line if len(line) <= _MAX_TEXT else f"{line[:_MAX_TEXT]}…"


def _texts(options: object) -> Iterator[str]:
    if isinstance(options, Mapping):
        for value in options.values():
            yield from _texts(value)
    elif isinstance(options, list | tuple):
        for value in options:
            yield from _texts(value)
    elif isinstance(options, str):
        yield options
