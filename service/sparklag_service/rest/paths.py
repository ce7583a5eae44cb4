"""Names in paths: whatever a name has in it, it is one segment."""

from __future__ import annotations

from urllib.parse import unquote

from starlette.convertors import Convertor, register_url_convertor
from starlette.types import Scope

from sparklag_schemas.rest_interface import path_segment


def path_by_segments(scope: Scope) -> str:
    """The path of a request with the slashes that are part of a name still encoded: the server has
    decoded them in `scope["path"]`, where they look like those between segments."""
    raw_path: bytes | None = scope.get("raw_path")
    if raw_path is None or b"%" not in raw_path:
        return str(scope["path"])
    segments = raw_path.decode("ascii", "replace").split("/")
    return "/".join(unquote(each).replace("%", "%25").replace("/", "%2F") for each in segments)


class _NameConvertor(Convertor[str]):
    """One segment of such a path, as in `/lag/{query:name}`."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value)

    def to_string(self, value: str) -> str:
        return path_segment(value)


register_url_convertor("name", _NameConvertor())
