"""fsspec's file systems with time limits and without caches, and why a store failed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from sparklag_offsets.checkpoints.files import MAX_FILE_BYTES, file_too_long
from sparklag_offsets.errors import CheckpointAway
from sparklag_schemas.errors import install_command
from sparklag_schemas.text.locations import shown_url

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
    """The reason in one clause. None: the store only reports that the file is missing."""
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
    visited: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in visited:
        visited.add(id(link))
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


_EXTRAS: Final = {
    "s3": "s3",
    **dict.fromkeys(("gs", "gcs"), "gcs"),
    **dict.fromkeys(("abfs", "abfss", "az"), "abfs"),
    **dict.fromkeys(("hdfs", "webhdfs"), "hdfs"),
}
"""sparklag's extra for each scheme."""
_HDFS: Final = (
    "hdfs:// needs the address of WebHDFS,"
    ' [checkpoints.storage.hdfs] webhdfs = "namenode:9870", or Hadoop\'s own library for pyarrow'
)
_ALIASES: Final = {"abfss": "abfs", "gcs": "gs"}
"""fsspec knows these schemes only once the package is loaded."""
_CONNECT_S: Final = 5.0
_CLOSE_S: Final = 2.0
_CONNECTIONS: Final = 32
"""The connections to one server, for as many threads."""
_WEBHDFS_PORT: Final = "9870"


def open_filesystem(
    scheme: str, location: str, options: Mapping[str, Any], timeout_s: float
) -> Any:
    """A file system that is not shared. `options` are fsspec's.

    Raises CheckpointAway where a package is missing, and the package's own errors.
    """
    overrides = dict(options)
    webhdfs = overrides.pop("webhdfs", None)
    if scheme == "hdfs" and webhdfs is not None:
        scheme, location = "webhdfs", f"webhdfs://{_address(str(webhdfs), overrides)}/"
    kind = _class_of(scheme)
    arguments = {**kind._get_kwargs_from_urls(location), **overrides}
    arguments |= {"skip_instance_cache": True, "use_listings_cache": False}
    if scheme == "hdfs":
        return _open_native_hdfs(kind, arguments)
    if scheme == "s3":
        return _with_bounded_reads(kind)(**arguments | _s3_defaults(timeout_s, overrides))
    if scheme == "webhdfs":
        if "port" in arguments:
            arguments["port"] = int(arguments["port"])
        filesystem = kind(**arguments)
        _limit_requests(filesystem.session, timeout_s)
        return filesystem
    return kind(**arguments)


def close_connections(filesystem: Any) -> None:
    """Close the connections of a file system that is no longer used; bounded in time.

    s3fs would close them during garbage collection, on the wrong event loop.
    """
    creator = getattr(filesystem, "_s3creator", None)
    if creator is not None:
        from fsspec.asyn import sync

        # The connections are discarded even after an error.
        with suppress(Exception):
            sync(filesystem.loop, creator.__aexit__, None, None, None, timeout=_CLOSE_S)


def _class_of(scheme: str) -> Any:
    import fsspec

    try:
        return fsspec.get_filesystem_class(_ALIASES.get(scheme, scheme))
    except ImportError as error:
        if scheme == "hdfs":
            raise CheckpointAway(f"{_HDFS} (pyarrow is not installed)") from error
        extra = _EXTRAS.get(scheme)
        remedy = install_command(extra) if extra else str(error)
        raise CheckpointAway(f"{scheme}:// needs a package that is not here: {remedy}") from error
    except ValueError as error:
        raise CheckpointAway(f"there is no kind of store called {scheme}://") from error


def _s3_defaults(timeout_s: float, overrides: Mapping[str, Any]) -> dict[str, Any]:
    limits = {
        "connect_timeout": min(_CONNECT_S, timeout_s),
        "read_timeout": timeout_s,
        "max_pool_connections": _CONNECTIONS,
        "retries": {"max_attempts": 2, "mode": "standard"},
    }
    return {"config_kwargs": {**limits, **overrides.get("config_kwargs", {})}}


def _with_bounded_reads(kind: Any) -> Any:
    """s3fs that takes the size from the response to the read. Requesting the size first would cost
    two more requests, and most objects do not exist yet."""

    class BoundedS3(kind):  # type: ignore[misc]  # known only once the package is loaded
        async def _cat_file(self, path: str) -> bytes:
            bucket, key, _ = self.split_path(path)
            response = await self._call_s3("get_object", Bucket=bucket, Key=key)
            try:
                if response["ContentLength"] > MAX_FILE_BYTES:
                    raise file_too_long(path)
                content: bytes = await response["Body"].read()
                return content
            finally:
                response["Body"].close()

    return BoundedS3


def _address(webhdfs: str, overrides: dict[str, Any]) -> str:
    """host:port of an address that may be written as a URL."""
    scheme, _, address = webhdfs.rpartition("://")
    if scheme == "https":
        overrides["use_https"] = True
    address = address.strip("/")
    return address if ":" in address else f"{address}:{_WEBHDFS_PORT}"


def _open_native_hdfs(kind: Any, arguments: dict[str, Any]) -> Any:
    try:
        return kind(**{**arguments, "host": arguments.get("host") or "default"})
    except OSError as error:
        # libhdfs, libjvm or the NameNode is missing.
        line = str(error).splitlines()[0][:100] if str(error) else type(error).__name__
        raise CheckpointAway(f"{_HDFS} ({line})") from error


def _limit_requests(session: Any, timeout_s: float) -> None:
    """Give every request of a `requests` session a deadline; by default there is none."""
    from requests.adapters import HTTPAdapter

    class TimeoutAdapter(HTTPAdapter):
        def send(self, request: Any, *arguments: Any, **options: Any) -> Any:
            if options.get("timeout") is None:
                options["timeout"] = (min(_CONNECT_S, timeout_s), timeout_s)
            return super().send(request, *arguments, **options)

    for prefix in ("http://", "https://"):
        session.mount(prefix, TimeoutAdapter(pool_maxsize=_CONNECTIONS))
