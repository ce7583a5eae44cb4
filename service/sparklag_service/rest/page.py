"""`GET /`, `/q/{query}`, `/t/{topic}`: the page, built from `web/` into `static/`.

The page is one application that asks the routes beside it. Its addresses are relative: the service
may be behind the path of a proxy that it does not know.
"""

from __future__ import annotations

import gzip
import mimetypes
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Annotated, Final

from fastapi import FastAPI, Header, Response
from fastapi.responses import HTMLResponse

from sparklag_service.rest import problems

_BASE: Final = '<base href="./">'
_FOREVER: Final = "public, max-age=31536000, immutable"
"""The name of an asset has a digest of its content."""
_SHORT: Final = "no-cache"


@dataclass(frozen=True)
class _File:
    body: bytes
    media_type: str
    cache_control: str

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.body, mtime=0)

    def response(self, accept_encoding: str) -> Response:
        headers = {"cache-control": self.cache_control, "vary": "accept-encoding"}
        if "gzip" not in accept_encoding:
            return Response(self.body, media_type=self.media_type, headers=headers)
        headers["content-encoding"] = "gzip"
        return Response(self.compressed, media_type=self.media_type, headers=headers)


AcceptEncoding = Annotated[str, Header()]


def add_page(app: FastAPI) -> None:
    """The routes."""
    built = dict(_built_files())

    def page(base: str) -> Response:
        if "index.html" not in built:
            raise problems.Problem(
                503,
                "page-not-built",
                "The page was not built",
                "this installation has no page: `pip install` of a wheel has; of a checkout it"
                " builds it",
            )
        html = built["index.html"].body.decode().replace(_BASE, f'<base href="{base}">')
        return HTMLResponse(html, headers={"cache-control": _SHORT})

    @app.get("/", include_in_schema=False)
    async def fleet() -> Response:
        return page("./")

    @app.get("/q/{query:name}", include_in_schema=False)
    @app.get("/t/{query:name}", include_in_schema=False)
    async def one(query: str) -> Response:
        return page("../")

    @app.get("/assets/{name}", include_in_schema=False)
    async def asset(name: str, accept_encoding: AcceptEncoding = "") -> Response:
        return file(f"assets/{name}", accept_encoding)

    @app.get("/icon.svg", include_in_schema=False)
    async def icon(accept_encoding: AcceptEncoding = "") -> Response:
        return file("icon.svg", accept_encoding)

    def file(name: str, accept_encoding: str) -> Response:
        if name not in built:
            raise problems.Problem(404, "not-found", "Not found", f"the page has no file {name}")
        return built[name].response(accept_encoding)


def _built_files() -> Iterator[tuple[str, _File]]:
    folder = files("sparklag_service.rest") / "static"
    if not folder.is_dir():
        return
    for item in folder.iterdir():
        if item.is_file():
            yield item.name, _file(item.name, item.read_bytes(), _SHORT)
    for item in (folder / "assets").iterdir():
        yield f"assets/{item.name}", _file(item.name, item.read_bytes(), _FOREVER)


def _file(name: str, body: bytes, cache_control: str) -> _File:
    media_type, _ = mimetypes.guess_type(name)
    return _File(body, media_type or "application/octet-stream", cache_control)
