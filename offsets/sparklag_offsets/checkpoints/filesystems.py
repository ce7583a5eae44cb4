"""fsspec's file system for a location, with time limits and without its caches."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from sparklag_offsets.checkpoints.files import MAX_FILE_BYTES, file_too_long
from sparklag_offsets.errors import CheckpointAway

_EXTRAS: Final = {
    "s3": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "abfs": "abfs",
    "abfss": "abfs",
    "az": "abfs",
    "hdfs": "hdfs",
    "webhdfs": "hdfs",
}
"""sparklag's extra for each scheme."""
_HDFS: Final = (
    "hdfs:// needs the address of WebHDFS,"
    ' [checkpoints.storage.hdfs] webhdfs = "namenode:9870", or Hadoop\'s own library for pyarrow'
)
_ALIASES: Final = {"abfss": "abfs", "gcs": "gs"}
"""fsspec knows these only once the package is loaded."""
_CONNECT_S: Final = 5.0
_CLOSE_S: Final = 2.0
_CONNECTIONS: Final = 32
"""To one server, for as many threads."""
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
    if scheme == "s3":
        arguments |= _s3_defaults(timeout_s, overrides)
    arguments |= {"skip_instance_cache": True, "use_listings_cache": False}
    if scheme == "hdfs":
        return _open_native_hdfs(kind, arguments)
    if scheme == "s3":
        return _with_bounded_reads(kind)(**arguments)
    if scheme == "webhdfs":
        if "port" in arguments:
            arguments["port"] = int(arguments["port"])
        filesystem = kind(**arguments)
        _limit_requests(filesystem.session, timeout_s)
        return filesystem
    return kind(**arguments)


def close_connections(filesystem: Any) -> None:
    """Close those of a file system that is no longer used; bounded in time.

    s3fs would close them in the thread that collects the garbage, on the wrong event loop.
    """
    creator = getattr(filesystem, "_s3creator", None)
    if creator is not None:
        from fsspec.asyn import sync

        # The connections are discarded whatever it raises.
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
        remedy = f"pip install 'sparklag[{extra}]'" if extra else str(error)
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
    """s3fs, with the size taken from the response to the read. A request for the size before it
    would cost two requests more, and most objects are not there yet."""

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
    """Give every request of a `requests` session a deadline: there is none by default."""
    from requests.adapters import HTTPAdapter

    class TimeoutAdapter(HTTPAdapter):
        def send(self, request: Any, *arguments: Any, **options: Any) -> Any:
            if options.get("timeout") is None:
                options["timeout"] = (min(_CONNECT_S, timeout_s), timeout_s)
            return super().send(request, *arguments, **options)

    for prefix in ("http://", "https://"):
        session.mount(prefix, TimeoutAdapter(pool_maxsize=_CONNECTIONS))
