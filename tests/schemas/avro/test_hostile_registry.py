"""A hostile schema registry: a definite answer refuses the messages of one id, and no other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec
import pytest
from werkzeug import Request, Response

from sparklag_schemas import LagEvent, RegistrySettings, Settings
from sparklag_schemas.avro.formats import MessageFormats, MessageReader
from sparklag_schemas.avro.schema import schema_of
from sparklag_schemas.errors import MalformedMessage, RegistryUnavailable
from tests.http_server import HttpServer
from tests.waiting import eventually

KNOWN, ODD = 1, 7
OURS = msgspec.json.encode({"schema": schema_of(LagEvent).text})
MISSING = b'{"error_code": 40403, "message": "Schema not found"}'


def value(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + b"\x02"


def registry(answer: Callable[[], Response]) -> HttpServer:
    """A registry that has one schema, and gives that answer for ODD."""

    def respond(request: Request) -> Response:
        if request.path == f"/schemas/ids/{KNOWN}":
            return Response(OURS)
        return answer() if request.path == f"/schemas/ids/{ODD}" else Response(MISSING, 404)

    return HttpServer(respond)


def formats(url: str, timeout_s: float = 0.5) -> MessageFormats:
    return MessageFormats(Settings(registry=RegistrySettings(url=url, timeout_s=timeout_s)))


def dripping() -> Iterator[bytes]:
    while True:
        yield b" "
        time.sleep(0.05)


@pytest.mark.parametrize("has_known", [True, False])
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda: Response(MISSING, 404), "does not have it"),
        (lambda: Response("nothing", 404), "404, nothing"),
        (lambda: Response('{"message": "password=hunter2"}', 422), r"422, password=\*\*\*"),
        (lambda: Response("{}", 403), "403"),
        (lambda: Response("", 302, {"location": "/schemas/ids/1"}), "302"),
        (lambda: Response("", 204), "unexpected answer"),
        (lambda: Response("[" * 400_000), "unexpected answer"),
        (lambda: Response('{"schema": 7}'), "unexpected answer"),
        (lambda: Response(b"\xff\xfe\n\x1b"), "unexpected answer"),
        (lambda: Response('{"schema": "\\"int\\""}'), "not an accepted Avro schema"),
        (lambda: Response('{"schema": "", "schemaType": "PROTOBUF"}'), "it is PROTOBUF"),
        (lambda: Response('{"schema": "", "references": [{}]}'), "AVRO with references"),
        (lambda: Response(b" " * 100_000 for _ in range(6_000)), "more than 524,288 bytes"),
        (lambda: Response("{}", 500), "500"),
        (lambda: Response("{}", 401), "401"),
        (lambda: Response("{}", 429), "429"),
        (lambda: Response(dripping()), r"no answer in 0\.\d* s"),
    ],
)
async def test_an_answer_for_one_id_refuses_its_messages_alone(
    answer: Callable[[], Response], why: str, has_known: bool
) -> None:
    with registry(answer) as server:
        reader = formats(server.url).reader(LagEvent)
        if has_known:
            await reader.learn([value(KNOWN)])
        await reader.learn([value(ODD), value(KNOWN)])
        requests = len(server.log)
        await reader.learn([value(ODD), value(KNOWN)])
        assert len(server.log) == requests
    with pytest.raises(MalformedMessage, match=why) as refusal:
        reader.decode(value(ODD))
    assert str(refusal.value).isprintable()
    with pytest.raises(MalformedMessage, match=r"not Avro of schema sparklag\.LagEvent"):
        reader.decode(value(KNOWN))


@pytest.mark.parametrize("status", [500, 503, 429, 401])
async def test_a_registry_that_fails_for_every_id_is_waited_for(status: int) -> None:
    statuses = iter([200, status, status])

    def respond(request: Request) -> Response:
        return Response(OURS, next(statuses, 200))

    with HttpServer(respond) as server:
        form = formats(server.url)
        reader = form.reader(LagEvent)
        await reader.learn([value(KNOWN)])
        with pytest.raises(RegistryUnavailable, match=str(status)):
            await reader.learn([value(ODD)])
        assert str(status) in str(form.waiting)
        await eventually(lambda: _is_learned(reader), "it is learned")
        assert form.waiting is None
    with pytest.raises(MalformedMessage, match=r"not Avro of schema sparklag\.LagEvent"):
        reader.decode(value(ODD))


async def _is_learned(reader: MessageReader[LagEvent]) -> bool:
    with suppress(RegistryUnavailable):
        await reader.learn([value(ODD)])
    return reader.is_known(value(ODD))


async def test_a_flood_of_unknown_ids_makes_few_requests_and_a_new_one_is_read() -> None:
    def slow() -> Response:
        time.sleep(0.05)
        return Response(OURS)

    with registry(slow) as server:
        reader = formats(server.url, timeout_s=20.0).reader(LagEvent)
        await reader.learn([value(KNOWN)])
        for first in range(1_000, 4_000, 200):
            await reader.learn([value(new) for new in range(first, first + 200)])
        assert len(server.log) < 1_000
        await reader.learn([value(new) for new in (*range(4_000, 4_200), ODD)])
    with pytest.raises(MalformedMessage, match=r"not Avro of schema sparklag\.LagEvent"):
        reader.decode(value(ODD))
