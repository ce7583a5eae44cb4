"""Databases that go, come, hang and refuse."""

from __future__ import annotations

import asyncio
import gc
import logging
import traceback
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from urllib.parse import quote

import pytest

from sparklag_jobs.broker.child_process import free_port
from sparklag_offsets.errors import StoreAway, StoreError
from sparklag_offsets.store import mongo_store, writer
from sparklag_offsets.store.batch_record import OffsetStore, Retention
from sparklag_offsets.store.sql import sql_store
from sparklag_offsets.store.writer import StoreWriter
from sparklag_schemas import Settings
from sparklag_schemas.text.locations import shown_url
from tests.databases.mariadb import MariaDBServer
from tests.databases.mongo_protocol import MongoProtocolServer
from tests.databases.postgresql import PostgreSQLServer
from tests.databases.server import HOST, PASSWORD, DatabaseServer
from tests.messages import QUERY_ID
from tests.offsets.conftest import open_until_end
from tests.offsets.store.batches import check_whole, output, places, record, spans
from tests.waiting import DEADLINE_S, holds

WRONG = "an@ther:p/w?#&+ %42"
PROMISED_S = 0.5
BOUND_S = 14.0
"""psycopg waits ten seconds for the server to cancel what it no longer waits for."""

Call = Callable[[OffsetStore], Awaitable[object]]
CALLS: dict[str, Call] = {
    "prepare": lambda store: store.prepare(),
    "newest": lambda store: store.newest([QUERY_ID]),
    "keep": lambda store: store.write([record(1)]),
    "as_of": lambda store: store.as_of(QUERY_ID, None),
    "queries": lambda store: store.queries("orders"),
    "prune": lambda store: store.prune(Retention(keep_batches=1)),
}


@pytest.fixture(
    scope="module",
    params=[PostgreSQLServer, MariaDBServer, MongoProtocolServer],
    ids=lambda kind: kind.scheme,
)
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """A server that these tests break, and leave running."""
    with request.param() as server:
        yield server


@pytest.fixture
async def opened() -> AsyncIterator[AsyncExitStack]:
    """Closes stores, and collects the socket that pymongo leaves where it is cancelled."""
    async with AsyncExitStack() as opened:
        yield opened
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def promise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_store, "_TIMEOUT_S", PROMISED_S)
    monkeypatch.setattr(mongo_store, "_TIMEOUT_S", PROMISED_S)
    monkeypatch.setattr(mongo_store, "_CONNECT_S", PROMISED_S)


@pytest.mark.parametrize("scheme", ["postgresql", "mysql", "mariadb", "mongodb"])
async def test_a_server_that_is_away_is_reported_in_one_line(
    scheme: str, opened: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    promise(monkeypatch)
    url = f"{scheme}://sparklag:{quote(PASSWORD, safe='')}@{HOST}:{free_port()}/offsets"
    store = open_until_end(url, opened)
    for call in CALLS.values():
        with pytest.raises(StoreAway) as raised:
            await call(store)
        check_line(str(raised.value), url)


@pytest.mark.packaging
@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "mongo_protocol"])
async def test_a_password_is_in_no_text_and_no_log(
    kind: str,
    request: pytest.FixtureRequest,
    opened: AsyncExitStack,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    server: DatabaseServer = request.getfixturevalue(kind)
    port = f"{HOST}:{server.port}"
    url = f"{server.scheme}://sparklag:{quote(WRONG, safe='')}@{port}/{server.default_database}"
    store = open_until_end(url, opened)
    with pytest.raises(StoreAway) as raised:
        await store.prepare()
    check_line(str(raised.value), url)
    texts = [repr(store), *map(repr, vars(store).values()), repr(raised.value)]
    texts += traceback.format_exception(raised.value)
    texts += [entry.getMessage() + str(entry.exc_text) for entry in caplog.records]
    for secret in (WRONG, quote(WRONG), quote(WRONG, safe=""), quote(WRONG, safe="/")):
        assert not [text for text in texts if secret in text]


@pytest.mark.packaging
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
async def test_a_database_that_is_not_there_is_named(
    kind: str, request: pytest.FixtureRequest, opened: AsyncExitStack
) -> None:
    url = request.getfixturevalue(kind).database_url("nowhere")
    with pytest.raises(StoreAway, match=r"database .nowhere") as raised:
        await open_until_end(url, opened).prepare()
    check_line(str(raised.value), url)


@pytest.mark.packaging
async def test_a_frozen_server_delays_no_call_longer_than_its_timeout(
    server: DatabaseServer, opened: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.new_database()
    connected, fresh = open_until_end(url, opened), open_until_end(url, opened)
    await connected.prepare()
    await connected.write([record(0)])
    server.freeze()
    try:
        promise(monkeypatch)
        for store, name in ((connected, "keep"), (connected, "as_of"), (fresh, "prepare")):
            asking = asyncio.ensure_future(CALLS[name](store))
            done, _ = await asyncio.wait({asking}, timeout=BOUND_S)
            assert done, "it is still being waited for"
            error = asking.exception()
            assert isinstance(error, StoreAway)
            check_line(str(error), url)
    finally:
        monkeypatch.undo()
        server.thaw()
    for store in (connected, fresh):
        await asyncio.wait_for(_until_it_works(lambda: store.write([record(1)])), DEADLINE_S)  # noqa: B023 waited for here
    assert len(await places(connected)) == 2


@pytest.mark.packaging
async def test_a_server_killed_while_batches_are_written_has_all_of_them_once(
    server: DatabaseServer, opened: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_FIRST_PAUSE_S", 0.05)
    store = open_until_end(server.new_database(), opened)
    batches = StoreWriter(store, Settings())
    total, is_over = 0, False

    async def write() -> None:
        nonlocal total
        while not is_over:
            # Some at a time, some of them again, as after a failure of the sender.
            await batches.write([output(n) for n in range(max(total - 3, 0), total + 4)])
            total += 4
            await asyncio.sleep(0.02)  # batches take a while

    writing = asyncio.create_task(write())
    for so_far in (20, 60):
        await holds(lambda: total >= so_far, "some are written")  # noqa: B023 waited for here
        await asyncio.to_thread(server.kill)
        await holds(lambda: batches.failing is not None, "it is noticed")
        await asyncio.to_thread(server.start)
        await holds(lambda: batches.failing is None, "it goes on")
    is_over = True
    await asyncio.wait_for(writing, DEADLINE_S)
    assert batches.counts.batches == total
    records = [await store.as_of(QUERY_ID, output(n).processed_at) for n in range(total)]
    whole = [one for one in records if one is not None]
    check_whole(whole)
    assert spans(whole) == [(0, n, n) for n in range(total)]
    assert [one.end_offsets() for one in whole] == [
        {(0, "orders"): {0: 10 * n + 10}} for n in range(total)
    ]


def check_line(text: str, url: str) -> None:
    assert "\n" not in text
    assert shown_url(url) in text
    assert len(text) < 600


async def _until_it_works(call: Callable[[], Awaitable[object]]) -> None:
    """The responses that a stopped server had begun are over."""
    while True:
        try:
            await call()
        except StoreError:
            await asyncio.sleep(0.05)
        else:
            return
