"""The routes of the page: its shell, its files, and the text that it shows of a query."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from msgspec.structs import replace

from sparklag_schemas import Settings, Status, encode
from sparklag_schemas.messages import enumerations
from sparklag_schemas.messages.lag_event import Runs
from sparklag_schemas.text import formatting
from sparklag_schemas.text.printable import printable
from sparklag_service.view.view import is_forgettable
from tests.commands import succeed
from tests.messages import lag_event
from tests.node_programs import node_folder
from tests.service.pipelines import complete_pipeline_of, show
from tests.service.rest_client import rest_client

ROOT = Path(__file__).parents[3]
RUNS = Runs(first_at=1, started_at=1, reported_at=2)


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    pipeline = complete_pipeline_of(Settings())
    show(pipeline, query="orders", status="STALL", reason="no batch for 5 min", total_lag=7)
    async with rest_client(pipeline) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "base"),
    [
        ("/", "./"),
        ("/q/orders", "../"),
        ("/q/a%2Fb", "../"),
        ("/t/..%2F..", "../"),
        ("/q/no", "../"),
    ],
)
async def test_every_page_is_the_same_shell_below_the_service_s_own_path(
    http: httpx.AsyncClient, path: str, base: str
) -> None:
    answer = await http.get(path)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert f'<base href="{base}">' in answer.text
    # Nothing is inline and nothing is of another host: the policy would refuse it.
    assert "style=" not in answer.text
    for address in re.findall(r'(?:src|href)="([^"]*)"', answer.text):
        assert address.startswith(("./", "../", "lag")), address


async def test_files_of_the_page_are_compressed_and_kept_for_good(http: httpx.AsyncClient) -> None:
    shell = (await http.get("/")).text
    sizes = []
    for path in re.findall(r'(?:src|href)="\./(assets/[^"]*)"', shell):
        plain = await http.get(path, headers={"accept-encoding": "identity"})
        packed = await http.get(path)
        assert plain.status_code == packed.status_code == 200
        assert plain.headers["content-type"].startswith(("text/javascript", "text/css"))
        assert "immutable" in plain.headers["cache-control"]
        assert packed.headers["content-encoding"] == "gzip"
        assert packed.content == plain.content
        sizes.append(int(packed.headers["content-length"]))
    assert len(sizes) == 2
    assert sum(sizes) <= 90_000


@pytest.mark.parametrize("path", ["/assets/none.js", "/assets/..%2Findex.html", "/assets/%2E%2E"])
async def test_other_files_are_not_there(http: httpx.AsyncClient, path: str) -> None:
    assert (await http.get(path)).status_code == 404


async def test_the_explanation_is_what_the_terminal_shows(http: httpx.AsyncClient) -> None:
    answer = await http.get("/lag/orders/explanation")
    assert answer.json()["status"].endswith("no batch for 5 min")
    lines = {line["heading"]: line["text"] for line in answer.json()["lines"]}
    assert lines["lag"] == "7 records, 65 in the worst partition, orders[0]"
    assert (await http.get("/lag/none/explanation")).status_code == 404


def results_of(source: str, function: str, arguments: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """What a function of the page returns for each of `arguments`."""
    script = (
        "const { [process.argv[2]]: call } = await import(process.argv[1]);"
        "console.log(JSON.stringify(JSON.parse(process.argv[3]).map((each) => call(...each))))"
    )
    node = (node_folder() / "bin/node", "--input-type=module", "-e")
    output = succeed(*node, script, ROOT / "web/src" / source, function, json.dumps(arguments))
    return list(json.loads(output))


def test_the_page_formats_values_as_the_terminal_does() -> None:
    cases: dict[str, list[list[Any]]] = {
        "span": [[s] for s in (0, 0.04, 9.96, 10, 119.4, 150, 7199, 7200, 172_799, 172_800, 1e7)],
        "records": [[None], [0], [999], [1_234_567]],
        "timeLag": [[0, 5], [3, None], [3, 61.5]],
        "ago": [[None, 5], [0, 60_000], [0, 150_000], [0, 7_200_000], [9, 5]],
        "perSecond": [[None], [0], [99.9], [100], [12_345.6]],
        "trend": [[None], [0.04], [-0.06], [12], [-1234]],
        "catchUp": [
            [0, None],
            [90, None],
            [None, None],
            [None, f"{formatting.NEVER}: 5/s come"],
            [None, f"{formatting.KEEPS_PACE}: 5/s come"],
            [None, "no rate is known"],
        ],
        "printable": [
            ["a\tb\n\r\0"],
            ["x\u202ey\u200f\u2028\xa0é中"],
            ["\U000e0001😀"],
            ["\x7f\x85"],
        ],
    }
    python: dict[str, Callable[..., str]] = {
        "span": formatting.span,
        "records": formatting.records,
        "timeLag": formatting.time_lag,
        "ago": formatting.ago,
        "perSecond": formatting.per_second,
        "trend": formatting.trend,
        "catchUp": formatting.catch_up,
        "printable": printable,
    }
    for name, arguments in cases.items():
        expected = [python[name](*each) for each in arguments]
        assert results_of("format.ts", name, arguments) == expected, name


def test_the_page_takes_the_same_queries_for_dead() -> None:
    events = [
        lag_event(status=status, run_id=run_id, runs=runs, driver_end=driver_end)
        for status in get_args(Status)
        for run_id in (None, "run")
        for runs in (None, replace(RUNS, ended=True), RUNS)
        for driver_end in (None, "closed", "exited")
    ]
    read = ("run_id", "status", "runs", "driver_end")
    arguments = [
        [{name: value for name, value in json.loads(encode(event)).items() if name in read}]
        for event in events
    ]
    assert results_of("status.ts", "isDead", arguments) == list(map(is_forgettable, events))


def test_the_page_takes_the_same_statuses_for_urgent() -> None:
    source = (ROOT / "web/src/status.ts").read_text()
    for name, mark in (("OK", "ok"), ("BAD", "bad")):
        (listed,) = re.findall(rf"const {name} = new Set\(\[(.*?)\]\)", source)
        assert {word.strip(' "') for word in listed.split(",")} == {
            status for status in get_args(Status) if enumerations.mark(status) == mark
        }
