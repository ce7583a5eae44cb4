"""`sparklag offsets` as a person meets it, and `GET /offsets` as a program does: without Kafka."""

from __future__ import annotations

import asyncio
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from sparklag_offsets.store import open_store
from sparklag_schemas import Settings, StoreSettings
from sparklag_schemas.settings import HttpTokenSettings
from sparklag_service.access.token_file import create_token
from tests.messages import QUERY_ID
from tests.offsets.store.batches import at_ms, record
from tests.service.cli.test_cli import refused, sparklag
from tests.service.pipelines import complete_pipeline_of, pipeline_of, show
from tests.service.rest_client import bearer, rest_client

OTHER_ID = "ee8b09d1-0000-4000-8000-000000000002"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three batches of `orders`, two of `orders-v2`, two queries `both`. Their brokers are away."""
    url = f"sqlite:///{tmp_path_factory.mktemp('offsets')}/offsets.db"
    records = [record(number) for number in range(3)]
    records += [record(number, query_id=OTHER_ID, query="orders-v2") for number in range(2)]
    records += [record(n, query_id=i, query="both") for i in ("a", "b") for n in range(2)]

    nowhere = [replace(r, ranges=r.ranges.replace("broker:9092", "127.0.0.1:1")) for r in records]

    async def fill() -> None:
        kept = open_store(url, create=True)
        await kept.prepare()
        await kept.write(nowhere)
        await kept.aclose()

    asyncio.run(fill())
    return url


def offsets(*arguments: str) -> subprocess.CompletedProcess[str]:
    return sparklag("offsets", *arguments)


def test_list_has_every_query_of_the_store_and_its_newest_batch(store: str) -> None:
    listed = offsets("list", "--store", store)
    assert listed.returncode == 0, listed.stderr
    heading, *rows = (line.split() for line in listed.stdout.splitlines())
    assert heading == ["query", "id", "batch", "completed", "first", "topic"]
    newest = [(row[0], row[1], row[2], row[-1]) for row in rows]
    assert newest == [
        ("both", "a", "1", "orders"),
        ("both", "b", "1", "orders"),
        ("orders", QUERY_ID[:8], "2", "orders"),
        ("orders-v2", OTHER_ID[:8], "1", "orders"),
    ]
    as_json = json.loads(offsets("list", "--store", store, "--json").stdout)
    assert [(query["query_id"], query["batch_id"]) for query in as_json][2:] == [
        (QUERY_ID, 2),
        (OTHER_ID, 1),
    ]
    assert [query["last_at"] for query in as_json][2:] == [at_ms(2), at_ms(1)]


def test_show_prints_the_batch_of_a_time_by_partition(store: str) -> None:
    shown = offsets("show", "orders", "--store", store, "--at", str(at_ms(1)))
    assert shown.returncode == 0, shown.stderr
    assert "batch 1, " in shown.stdout
    assert QUERY_ID in shown.stdout
    last = json.loads(offsets("show", QUERY_ID, "--store", store, "--json").stdout)
    assert last["batch_id"] == 2
    (topic,) = last["topics"]
    assert topic["partitions"] == [{"partition": 0, "from": 20, "until": 30}]


def test_diff_is_a_probe_of_whether_the_second_has_caught_up(store: str) -> None:
    behind = offsets("diff", "orders", "orders-v2", "--store", store)
    assert behind.returncode == 1
    assert "orders-v2 is 10 records behind orders" in behind.stdout
    ahead = offsets("diff", "orders-v2", "orders", "--store", store, "--json")
    assert (ahead.returncode, json.loads(ahead.stdout)["caught_up"]) == (0, True)


def test_restore_writes_nothing_but_the_json_that_spark_takes(store: str) -> None:
    unchecked = ("--store", store, "--on-deleted", "unchecked")
    given = offsets("restore", "orders", *unchecked, "--json", "--at", str(at_ms(0)))
    assert json.loads(given.stdout) == {"orders": {"0": 10}}
    explained = offsets("restore", "orders", *unchecked)
    assert """.option("startingOffsets", '{"orders":{"0":30}}')""" in explained.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("show", "nobody"), "query 'nobody' is not in the offset store"),
        (("show", "orders", "--at", "1000"), "after 1970-01-01"),
        (("show", "both"), "2 queries have the name 'both' at the same time"),
        (("diff", "orders", "nobody"), "query 'nobody' is not in"),
    ],
)
def test_refusals_exit_with_code_2(store: str, arguments: tuple[str, ...], complaint: str) -> None:
    assert complaint in refused(offsets(*arguments, "--store", store))


def test_without_a_store_the_line_reports_where_to_set_it() -> None:
    assert "setting store.url is not set" in refused(offsets("show", "orders"))
    missing = offsets("show", "orders", "--store", "sqlite:///no-such.db")
    assert "there is no file no-such.db" in refused(missing)


async def test_rest_gives_the_same_and_reports_of_which_batch(store: str) -> None:
    pipeline = pipeline_of(Settings(store=StoreSettings(url=store)))
    async with rest_client(pipeline) as http:
        given = await http.get(f"/offsets/orders?on_deleted=unchecked&at={at_ms(1)}")
        assert (given.status_code, given.json()) == (200, {"orders": {"0": 20}})
        assert given.headers["Sparklag-Batch-Id"] == "1"
        assert given.headers["Sparklag-Processed-At"] == str(at_ms(1))
        for question, status, kind in (
            ("nobody", 404, "unknown-query"),
            ("both", 409, "ambiguous-query-name"),
            ("orders?at=1000", 404, "before-first-batch"),
            ("orders?at=soon", 422, "invalid-parameter"),
            ("orders?source=7", 409, "source-not-named"),
            ("orders?edge=middle", 422, "invalid-parameter"),
            ("orders", 503, "kafka-away"),
        ):
            problem = await http.get(f"/offsets/{question}")
            assert problem.status_code == status, question
            assert problem.json()["type"].endswith(f"/{kind}"), question
        both = await http.get("/offsets/both")
        assert both.json()["query_ids"] == ["a", "b"]


async def test_a_query_whose_id_is_another_s_name_or_prefix_has_not_its_offsets(
    store: str, tmp_path: Path
) -> None:
    path = tmp_path / "tokens.json"
    headers = bearer(create_token(path, "team-a", ["offsets"], ["team-a-.*"], [], None))
    http_tokens = HttpTokenSettings(file=str(path))
    pipeline = complete_pipeline_of(
        Settings(store=StoreSettings(url=store), http_tokens=http_tokens)
    )
    statuses = {"orders": 404, QUERY_ID[:8]: 404, "a": 200}
    for query_id in statuses:
        show(pipeline, query_id=query_id, query=f"team-a-{query_id}")
    async with rest_client(pipeline) as http:
        for query_id, status in statuses.items():
            url = f"/offsets/{query_id}?on_deleted=unchecked"
            answer = await http.get(url, headers=headers)
            assert answer.status_code == status, answer.text


async def test_rest_without_a_store_reports_so() -> None:
    async with rest_client(pipeline_of(Settings())) as http:
        problem = await http.get("/offsets/orders")
    assert (problem.status_code, problem.json()["title"]) == (404, "No offset store")
