"""A batch's record and what it wrote: in one transaction, once, whoever else writes."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine, select, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from sparklag_offsets.errors import BatchConflict, NoKafkaOffsets, StoreError, UnusableStore
from sparklag_offsets.store import open_store
from sparklag_offsets.store.sql import database
from sparklag_offsets.store.sql.transaction import prepare, record_batch, require_connection
from sparklag_schemas import Observation
from tests.messages import observation, position
from tests.offsets.store.sql_client import with_driver

BLOCKED_S = 0.5
DEADLINE_S = 240.0

results = Table("results", MetaData(), Column("batch_id", Integer))
Result = TypeVar("Result")


@pytest.fixture
def empty(sql_url: str) -> Iterator[Engine]:
    engine = create_engine(with_driver(sql_url))
    results.create(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def engine(empty: Engine) -> Engine:
    prepare(empty)
    return empty


def batch(
    number: int, ends: int | None = None, run_id: str = "run-1", **fields: Any
) -> Observation:
    ends = 10 * (number + 1) if ends is None else ends
    where = position({"orders": {0: ends}}, began={"orders": {0: 10 * number}})
    defaults = {"sources": [where], "observed_at": 1_000 + number, "processed_at": 1_000 + number}
    return observation(
        **{"batch_id": number, "run_id": run_id, "batch": None, **defaults, **fields}
    )


def no_id(bootstrap_servers: str | None, topic: str) -> None:
    return None


def write(engine: Engine, observed: Observation) -> bool:
    """Write a batch as the function of foreachBatch does."""
    with engine.begin() as transaction:
        is_new = record_batch(transaction, observed, no_id)
        if is_new:
            transaction.execute(results.insert().values(batch_id=observed.batch_id))
        return is_new


def written(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.scalars(select(results.c.batch_id).order_by(results.c.batch_id)))


def recorded(engine: Engine) -> list[tuple[int, int, str | None, list[list[int]]]]:
    wanted = "SELECT * FROM sparklag_batches ORDER BY query_key, generation, batch_id"
    with engine.connect() as connection:
        return [
            (row.first_batch_id, row.batch_id, row.run_id, json.loads(row.ranges)[0][4])
            for row in connection.execute(text(wanted))
        ]


def refused(engine: Engine, observed: Observation) -> str:
    before = written(engine), recorded(engine)
    with pytest.raises(BatchConflict) as refusal:
        write(engine, observed)
    assert (written(engine), recorded(engine)) == before
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_batches_are_recorded_with_what_they_write(engine: Engine) -> None:
    assert all(write(engine, batch(number)) for number in range(3))
    assert written(engine) == [0, 1, 2]
    assert recorded(engine) == [
        (number, number, "run-1", [[0, 10 * number, 10 * number + 10]]) for number in range(3)
    ]


def test_what_is_rolled_back_is_not_recorded_and_not_remembered(engine: Engine) -> None:
    for number in range(2):
        with engine.connect() as connection:
            assert record_batch(connection, batch(number), no_id)
            connection.rollback()
        assert written(engine) == list(range(number))
        assert len(recorded(engine)) == number
        assert write(engine, batch(number))
    assert written(engine) == [0, 1]


@pytest.mark.parametrize("run_id", ["run-1", "run-2"])
def test_a_batch_that_was_written_is_not_written_again(engine: Engine, run_id: str) -> None:
    write(engine, batch(0))
    write(engine, batch(1))
    assert not write(engine, batch(1, run_id=run_id))
    assert written(engine) == [0, 1]
    assert write(engine, batch(2, run_id=run_id))


def test_a_batch_with_other_ends_is_refused(engine: Engine) -> None:
    write(engine, batch(0))
    line = refused(engine, batch(0, ends=7, run_id="run-2"))
    assert "query orders: batch 0 is recorded already, by run run-1, with other ends" in line
    assert "two drivers run the query, or its checkpoint went back" in line
    assert "starting_offsets('orders', store=…)" in line


def test_a_checkpoint_that_went_back_is_refused(engine: Engine) -> None:
    for number in range(3):
        write(engine, batch(number))
    assert "batch 1 comes after batch 2" in refused(engine, batch(1, run_id="run-2"))


def test_a_past_run_is_refused_with_any_batch(engine: Engine) -> None:
    write(engine, batch(0, run_id="zombie"))
    write(engine, batch(1, run_id="its heir"))
    for number in (1, 2, 5):
        line = refused(engine, batch(number, run_id="zombie"))
        assert "run zombie continues after run its heir has followed it" in line
    assert write(engine, batch(2, run_id="its heir"))


def test_a_batch_that_begins_elsewhere_than_the_one_before_ended_is_refused(engine: Engine) -> None:
    write(engine, batch(0, ends=12))
    line = refused(engine, batch(1, run_id="run-2"))
    assert "batch 1 begins at orders[0] 10, and batch 0 ended at 12" in line


def test_a_hole_is_filled_and_reported(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    write(engine, batch(0))
    assert write(engine, batch(4))
    assert recorded(engine)[1:] == [(1, 3, None, [[0, 10, 40]]), (4, 4, "run-1", [[0, 40, 50]])]
    assert "query orders: batches 1 to 3 were not recorded" in caplog.text


def test_a_batch_without_kafka_offsets_is_refused(engine: Engine) -> None:
    with pytest.raises(NoKafkaOffsets, match="query orders: batch 0 has no Kafka offsets"):
        write(engine, batch(0, sources=[]))


def test_a_query_keeps_its_row_and_takes_no_numbers_from_others(engine: Engine) -> None:
    for number in range(20):
        write(engine, batch(number, query=f"orders-{number}"))
    write(engine, batch(0, query_id="another"))
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT * FROM sparklag_queries ORDER BY query_key")).all()
    assert [row.query_key for row in rows] == [1, 2]
    assert rows[0].name == "orders-19"


def in_thread(call: Callable[[], Result]) -> Future[Result]:
    pool = ThreadPoolExecutor(1)
    future = pool.submit(call)
    pool.shutdown(wait=False)
    return future


@pytest.mark.parametrize("number", [0, 1])
def test_a_second_writer_waits_for_the_first(engine: Engine, number: int) -> None:
    for earlier in range(number):
        write(engine, batch(earlier))
    with engine.begin() as transaction:
        assert record_batch(transaction, batch(number), no_id)
        second = in_thread(lambda: write(engine, batch(number, run_id="run-2")))
        with pytest.raises(FutureTimeoutError):
            second.result(BLOCKED_S)
    assert not second.result(DEADLINE_S)
    assert written(engine) == list(range(number))


def test_one_of_two_runs_that_plan_a_batch_differently_writes_it(engine: Engine) -> None:
    write(engine, batch(0))
    together = threading.Barrier(2)

    def write_one(ends: int) -> bool:
        together.wait(DEADLINE_S)
        return write(engine, batch(1, ends=ends, run_id=f"run-{ends}"))

    both = [in_thread(partial(write_one, ends)) for ends in (15, 17)]
    errors = [future.exception(DEADLINE_S) for future in both]
    assert [type(error) for error in errors if error is not None] == [BatchConflict]
    assert written(engine) == [0, 1]


def test_a_reader_that_began_before_it_had_the_lock_does_not_write_twice(engine: Engine) -> None:
    write(engine, batch(0))
    with engine.connect() as connection:
        connection.execute(select(results)).all()
        write(engine, batch(1, run_id="run-2"))
        with pytest.raises(StoreError) as refusal:
            record_batch(connection, batch(1, ends=15), no_id)
    assert "\n" not in str(refusal.value)


def test_without_tables_it_reports_what_makes_them(empty: Engine) -> None:
    for number in (0, 1):
        with pytest.raises(StoreError, match=r"sparklag_queries.*: prepare_store\(\) makes"):
            write(empty, batch(number))


def test_without_a_transaction_it_refuses(engine: Engine) -> None:
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    with pytest.raises(UnusableStore, match="AUTOCOMMIT"), autocommit.connect() as connection:
        record_batch(connection, batch(0), no_id)
    with pytest.raises(UnusableStore, match="AUTOCOMMIT"):
        prepare(create_engine(engine.url, isolation_level="AUTOCOMMIT", poolclass=NullPool))


def test_it_takes_synchronous_engines_and_connections(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/results.db"
    with pytest.raises(UnusableStore, match=r"takes a synchronous sqlalchemy\.Engine, got .*Async"):
        prepare(create_async_engine(url))  # type: ignore[arg-type]  # what the test is about
    with pytest.raises(UnusableStore, match=r"takes a sqlalchemy\.Connection.*got builtins\.int"):
        require_connection(1)


def prepare_at(url: str) -> None:
    engine = create_engine(url, poolclass=NullPool)
    prepare(engine)


async def prepare_store_at(url: str) -> None:
    store = open_store(url, create=True)
    await store.prepare()
    await store.aclose()


def test_tables_are_made_once_by_all_that_start_together(empty: Engine) -> None:
    url = empty.url.render_as_string(hide_password=False)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as others:
        for other in [others.submit(os.getpid) for _ in range(2)]:
            other.result(DEADLINE_S)
        started: list[Future[None]] = [others.submit(prepare_at, url) for _ in range(4)]
        observer = partial(prepare_store_at, url.replace("+pymysql", ""))
        started += [in_thread(lambda: asyncio.run(observer())) for _ in range(2)]
        started += [in_thread(partial(prepare_at, url)) for _ in range(2)]
        for future in started:
            future.result(DEADLINE_S)
    assert write(empty, batch(0))


def test_half_made_tables_are_completed(empty: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def make_and_die(connection: Any, shown: str, make: Any = database.upgrade) -> None:
        make(connection, shown)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(database, "upgrade", make_and_die)
        with pytest.raises(KeyboardInterrupt):
            prepare(empty)
    prepare(empty)
    assert write(empty, batch(0))
