"""fsspec's file system for a location, with time limits and without its caches."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from sparklag_offsets.checkpoints.files import LONGEST_FILE, too_long
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
"""What is installed along with sparklag for each scheme."""
_HDFS: Final = (
    "hdfs:// needs the address of WebHDFS,"
    ' [checkpoints.storage.hdfs] webhdfs = "namenode:9870", or Hadoop\'s own library for pyarrow'
)
_SAME_CLASS: Final = {"abfss": "abfs", "gcs": "gs"}
"""Names that fsspec knows only once the package is there."""
_CONNECT_S: Final = 5.0
_CLOSE_S: Final = 2.0
_CONNECTIONS: Final = 32
"""Kept open to one server, for as many threads."""
_WEBHDFS_PORT: Final = "9870"


def open_filesystem(
    scheme: str, location: str, options: Mapping[str, Any], timeout_s: float
) -> Any:
    """A file system of its own, shared with nobody. `options` are fsspec's.

    Raises CheckpointAway where a package is missing, and what the package raises.
    """
    given = dict(options)
    webhdfs = given.pop("webhdfs", None)
    if scheme == "hdfs" and webhdfs is not None:
        scheme, location = "webhdfs", f"webhdfs://{_address(str(webhdfs), given)}/"
    kind = _class_of(scheme)
    named = {**kind._get_kwargs_from_urls(location), **given}
    if scheme == "s3":
        named |= _s3_defaults(timeout_s, given)
    named |= {"skip_instance_cache": True, "use_listings_cache": False}
    if scheme == "hdfs":
        return _open_native_hdfs(kind, named)
    if scheme == "s3":
        return _with_bounded_reads(kind)(**named)
    if scheme == "webhdfs":
        if "port" in named:
            named["port"] = int(named["port"])
        filesystem = kind(**named)
        _limit_requests(filesystem.session, timeout_s)
        return filesystem
    return kind(**named)


def close_connections(filesystem: Any) -> None:
    """Of one that nobody needs any more; bounded in time.

    s3fs leaves it to whichever thread collects the garbage. Where that runs a loop, the connections
    are closed on it, which is not theirs.
    """
    creator = getattr(filesystem, "_s3creator", None)
    if creator is not None:
        from fsspec.asyn import sync

        # Whatever it raises: they are given up.
        with suppress(Exception):
            sync(filesystem.loop, creator.__aexit__, None, None, None, timeout=_CLOSE_S)


def _class_of(scheme: str) -> Any:
    import fsspec

    try:
        return fsspec.get_filesystem_class(_SAME_CLASS.get(scheme, scheme))
    except ImportError as error:
        if scheme == "hdfs":
            raise CheckpointAway(f"{_HDFS} (pyarrow is not installed)") from error
        extra = _EXTRAS.get(scheme)
        remedy = f"pip install 'sparklag[{extra}]'" if extra else str(error)
        raise CheckpointAway(f"{scheme}:// needs a package that is not here: {remedy}") from error
    except ValueError as error:
        raise CheckpointAway(f"there is no kind of store called {scheme}://") from error


def _s3_defaults(timeout_s: float, given: Mapping[str, Any]) -> dict[str, Any]:
    limits = {
        "connect_timeout": min(_CONNECT_S, timeout_s),
        "read_timeout": timeout_s,
        "max_pool_connections": _CONNECTIONS,
        "retries": {"max_attempts": 2, "mode": "standard"},
    }
    return {"config_kwargs": {**limits, **given.get("config_kwargs", {})}}


def _with_bounded_reads(kind: Any) -> Any:
    """s3fs, told by the answer itself how long an object is: to ask before, where most objects that
    are asked for are not there yet, would be two requests more for each."""

    class BoundedS3(kind):  # type: ignore[misc]  # known only once the package is loaded
        async def _cat_file(self, path: str) -> bytes:
            bucket, key, _ = self.split_path(path)
            answer = await self._call_s3("get_object", Bucket=bucket, Key=key)
            try:
                if answer["ContentLength"] > LONGEST_FILE:
                    raise too_long(path)
                content: bytes = await answer["Body"].read()
                return content
            finally:
                answer["Body"].close()

    return BoundedS3


def _address(webhdfs: str, given: dict[str, Any]) -> str:
    """host:port of an address that may be written as a URL."""
    scheme, _, address = webhdfs.rpartition("://")
    if scheme == "https":
        given["use_https"] = True
    address = address.strip("/")
    return address if ":" in address else f"{address}:{_WEBHDFS_PORT}"


def _open_native_hdfs(kind: Any, named: dict[str, Any]) -> Any:
    named = {**named, "host": named.get("host") or "default"}
    try:
        return kind(**named)
    except OSError as error:
        # libhdfs or libjvm is not there, or the NameNode is not.
        line = str(error).splitlines()[0][:100] if str(error) else type(error).__name__
        raise CheckpointAway(f"{_HDFS} ({line})") from error


def _limit_requests(session: Any, timeout_s: float) -> None:
    """Give every request of a `requests` session a deadline: there is none by default."""
    from requests.adapters import HTTPAdapter

    class Impatient(HTTPAdapter):
        def send(self, request: Any, *arguments: Any, **named: Any) -> Any:
            if named.get("timeout") is None:
                named["timeout"] = (min(_CONNECT_S, timeout_s), timeout_s)
            return super().send(request, *arguments, **named)

    for prefix in ("http://", "https://"):
        session.mount(prefix, Impatient(pool_maxsize=_CONNECTIONS))
