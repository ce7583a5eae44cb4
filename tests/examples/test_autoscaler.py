"""`examples/autoscaler.py`: its rules, and a decision by the answer of a real service."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from autoscaler import Autoscaler, Event, Rules, desired
from sparklag_jobs.broker.child_process import ChildProcess
from sparklag_schemas import Batch, PartitionLag, TopicLag, encode
from sparklag_schemas.settings import HttpTokenSettings
from sparklag_schemas.timestamps import epoch_ms
from sparklag_service.access.token_file import create_token
from tests.child_processes import running
from tests.examples.processes import EXAMPLES, example_environment
from tests.messages import lag_event
from tests.second_client import SecondClient
from tests.service.conftest import settings_for
from tests.service.instances import instance
from tests.waiting import holds
from tests.web.reported_query import ReportedQuery

RULES = Rules(least=1, most=10, catch_up_s=100.0)
LIMITED: dict[str, Any] = {
    "batch": Batch(started_at=0, rows=1, rate_limited=True),
    "processed_rate": 50.0,
}


def event(partitions: int = 20, at_s: float = 0.0, **fields: Any) -> Event:
    lags = [PartitionLag(partition=number) for number in range(partitions)]
    named = {
        "measured_at": round(at_s * 1000),
        "topics": [TopicLag(topic="orders", source=0, partitions=lags)],
        "total_lag": 0,
        "input_rate": 100.0,
        "batch_rate": 140.0,
        **fields,
    }
    message: Event = json.loads(encode(lag_event(**named)))
    return message


@pytest.mark.parametrize(
    ("fields", "workers"),
    [
        pytest.param({}, 4, id="busy enough"),
        pytest.param({"batch_rate": 90.0, "total_lag": 4_000}, 8, id="more comes than it can do"),
        pytest.param({"total_lag": 14_000}, 9, id="the lag is to be gone in 100 s"),
        pytest.param({"batch_rate": 80.0, "total_lag": 2_900}, 4, id="it keeps pace"),
        pytest.param({"total_lag": 10**6}, 10, id="never more than the most"),
        pytest.param({"total_lag": 10**6, **LIMITED}, 4, id="it waits for its limit"),
        pytest.param({"total_lag": 10**6, **LIMITED, "processed_rate": 139.0}, 10, id="not much"),
        pytest.param({"total_lag": 10**6, "partitions": 6}, 6, id="nor than partitions"),
        pytest.param({"partitions": 3}, 3, id="the fourth has none"),
        pytest.param({"partitions": 3, "batch_rate": 400.0}, 2, id="it has time to spare"),
        pytest.param({"input_rate": 0.0, "batch_rate": None}, 1, id="nothing is to be done"),
        pytest.param({"total_lag": None}, 4, id="the lag is not known"),
        pytest.param({"total_lag": 10**6, "unknown_partitions": 1}, 4, id="or not all of it"),
        pytest.param({"input_rate": None}, 4, id="nor what comes"),
        pytest.param({"total_lag": 10**6, "batch_rate": None}, 4, id="nor what it can do"),
        pytest.param({"total_lag": 10**6, "status": "STALL"}, 4, id="it hangs"),
        pytest.param({"total_lag": 10**6, "status": "STOP"}, 4, id="it is dead"),
        pytest.param({"total_lag": 10**6, "status": "FAILED"}, 4, id="it failed"),
        pytest.param({"total_lag": 10**6, "status": "REWIND"}, 10, id="it reads again"),
    ],
)
def test_four_workers_become(fields: dict[str, Any], workers: int) -> None:
    assert desired(event(**fields), 4, RULES) == workers


def test_more_come_at_once_and_then_the_rates_must_be_new() -> None:
    scaler = Autoscaler(RULES, 2)
    behind = event(at_s=1_000, total_lag=10**6)
    assert scaler.decide(behind) == 10
    scaler.changed(4, behind)
    assert scaler.decide(event(at_s=1_119, total_lag=10**6)) == 4
    assert scaler.decide(event(at_s=1_121, total_lag=10**6)) == 10


def test_workers_go_when_ten_minutes_need_fewer() -> None:
    scaler = Autoscaler(RULES, 4)
    idle: dict[str, Any] = {"batch_rate": 300.0}
    idler: dict[str, Any] = {"batch_rate": 600.0}
    assert scaler.decide(event(at_s=0, **idle)) == 4
    assert scaler.decide(event(at_s=300)) == 4
    assert scaler.decide(event(at_s=610, **idler)) == 4, "they were needed five minutes ago"
    assert scaler.decide(event(at_s=890, **idle)) == 4
    assert scaler.decide(event(at_s=910, **idler)) == 2, "the most that were requested"


@pytest.mark.kafka
async def test_a_query_that_falls_behind_is_given_workers(
    second_client: SecondClient, topic_name: str, tmp_path: Path
) -> None:
    topic = second_client.create(topic_name, 4)
    for number in range(4):
        second_client.produce(topic, [b"order"] * 1_000, partition=number)
    tokens = tmp_path / "tokens.json"
    token = create_token(tokens, "autoscaler", ["lag"], ["orders"], [], None)
    settings = replace(
        settings_for(second_client.bootstrap_servers),
        http_tokens=HttpTokenSettings(file=str(tokens)),
    )
    query = ReportedQuery(second_client, settings.offsets_topic, topic, "orders")
    batch = Batch(started_at=epoch_ms(), rows=100, duration_ms=10_000)
    async with instance(settings) as (pipeline, port):
        query.complete_batch(0, 0, 0, 0, batch=batch)
        await holds(lambda: pipeline.view.get(query.id), "the first batch is measured")
        example = ChildProcess(
            "the example",
            [
                sys.executable, str(EXAMPLES / "autoscaler.py"), f"http://127.0.0.1:{port}",
                "orders", "--current", "2", "--command", f"touch {tmp_path}/{{n}}-workers",
            ],
            log_path=tmp_path / "log",
            environment={**example_environment(), "SPARKLAG_TOKEN": token},
        )  # fmt: skip
        with running(example):
            query.complete_batch(25, 25, 25, 25, batch=batch)
            # 3,900 to be gone in 300 s, and 10 a second with two workers.
            await holds((tmp_path / "4-workers").exists, "it has decided")
    (line,) = example.log_path.read_text().splitlines()
    assert line.startswith("orders: 2 -> 4 workers: lag 3900, input 0.0/s, capacity 10.0/s")
