"""`examples/lag_consumer.py`: members that come, are killed and leave, on a real broker."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from sparklag_jobs.broker.child_process import ChildProcess
from sparklag_schemas import encode
from sparklag_schemas.messages.topics import key_of, partition_of
from tests.child_processes import running
from tests.examples.avro_values import in_avro
from tests.examples.processes import EXAMPLES, ROOT, example_environment
from tests.messages import lag_event
from tests.schema_registry import SchemaRegistryServer
from tests.second_client import SecondClient
from tests.waiting import wait_for

pytestmark = pytest.mark.kafka
_PARTITIONS: Final = 4
_QUERIES: Final = [f"query-{number}" for number in range(20)]
_NEWER: Final = encode(lag_event(schema_version="2.0"))
_END_S: Final = 120.0


class Group:
    """Members of one group, on a topic of their own, and what they have done in all."""

    def __init__(self, client: SecondClient, topic: str, folder: Path) -> None:
        self._client = client
        self.topic = client.create(topic, _PARTITIONS)
        self._folder = folder
        self._file = folder / "work"
        self._file.touch()
        self._opened = ExitStack()
        self._records: list[list[str | None]] = [[] for _ in range(_PARTITIONS)]
        """By partition and offset: the work that it makes; None, where it makes none."""
        self._numbers = count(1)

    def write(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            number = next(self._numbers)
            for query_id in _QUERIES:
                event = lag_event(
                    event_id=f"{query_id}/{number}", query_id=query_id, measured_at=number
                )
                self._append(query_id, encode(event), event.event_id)

    def forget(self, query_id: str) -> None:
        self._append(query_id, None, f"{query_id}/forgotten")

    def spoil(self, query_id: str, value: bytes) -> str:
        """Write what cannot be read among the events of the query; its place."""
        return self._append(query_id, value, None)

    def _append(self, query_id: str, value: bytes | None, work: str | None) -> str:
        partition = partition_of(query_id, _PARTITIONS)
        self._client.produce(self.topic, [value], key=key_of(query_id))
        self._records[partition].append(work)
        return f"{self.topic}[{partition}]@{len(self._records[partition]) - 1}"

    def start(self, name: str) -> ChildProcess:
        process = ChildProcess(
            name,
            [
                sys.executable, "-m", "tests.examples.lag_member",
                self._client.bootstrap_servers, self.topic, self.topic, name, str(self._folder),
            ],
            log_path=self._folder / f"{name}.log",
            environment=example_environment(),
            directory=ROOT,
        )  # fmt: skip
        return self._opened.enter_context(running(process))

    def hang(self, member: ChildProcess) -> str:
        """Let it hang in an event that it has not committed: that event."""
        self._hangs(member).touch()
        done = len(self.done_by(member))
        self.write(3)
        wait_for(lambda: len(self.done_by(member)) > done, f"{member.name} is at work")
        return self.done_by(member)[-1]

    def go_on(self, member: ChildProcess) -> None:
        self._hangs(member).unlink()

    def _hangs(self, member: ChildProcess) -> Path:
        return self._folder / f"{member.name}.hangs"

    def work(self) -> list[tuple[str, str]]:
        lines = [line.split(" ") for line in self._file.read_text().splitlines()]
        return [(who, what) for who, what in lines]

    def done_by(self, member: ChildProcess) -> list[str]:
        return [what for who, what in self.work() if who == member.name]

    def wanted(self) -> list[str]:
        return [work for records in self._records for work in records if work is not None]

    def committed(self) -> set[str]:
        offsets = self._client.committed(self.topic, self.topic)
        return {
            work
            for partition, records in enumerate(self._records)
            for work in records[: offsets.get(partition, 0)]
            if work is not None
        }

    def all_is_committed(self) -> None:
        assert all(self._records), "a partition has no query"
        ends = {partition: len(records) for partition, records in enumerate(self._records)}
        wait_for(lambda: self._client.committed(self.topic, self.topic) == ends, "all is committed")

    def close(self) -> None:
        self._opened.close()


@pytest.fixture
def group(second_client: SecondClient, topic_name: str, tmp_path: Path) -> Iterator[Group]:
    group = Group(second_client, topic_name, tmp_path)
    try:
        yield group
    finally:
        group.close()


@pytest.mark.slow
def test_every_event_is_worked_off_in_order_and_again_only_after_a_kill(group: Group) -> None:
    a, b = group.start("a"), group.start("b")

    def both_work() -> bool:
        group.write()
        return bool(group.done_by(a) and group.done_by(b))

    wait_for(both_work, "both work")
    unreadable = [group.spoil(_QUERIES[1], b"junk"), group.spoil(_QUERIES[2], _NEWER)]
    group.forget(_QUERIES[3])
    group.all_is_committed()
    output = a.log_path.read_text() + b.log_path.read_text()
    for place in unreadable:
        assert f"skipped {place}: " in output

    lost = group.hang(a)
    a.kill()
    assert lost not in group.committed()
    assert group.committed() <= {what for _, what in group.work()}

    # c joins while b is at work; a's partitions come when its session has ended.
    group.hang(b)
    revoked = b.log_path.read_text().count("Revoking")
    c = group.start("c")
    wait_for(lambda: b.log_path.read_text().count("Revoking") > revoked, "b is to hand over")
    group.go_on(b)
    group.all_is_committed()
    group.write(20)
    done = len(group.done_by(b))
    wait_for(lambda: len(group.done_by(b)) > done, "b is at work")
    _leave(b)
    assert set(group.done_by(b)) <= group.committed()
    group.all_is_committed()
    _leave(c)

    work = [what for _, what in group.work()]
    once = list(dict.fromkeys(work))
    for query_id in _QUERIES:
        of_query = _about(query_id)
        assert list(filter(of_query, once)) == list(filter(of_query, group.wanted()))
    again = {what for what in once if work.count(what) > 1}
    assert lost in again
    assert again <= set(group.done_by(a))
    for member in (a, b, c):
        assert len(group.done_by(member)) == len(set(group.done_by(member)))


def _leave(member: ChildProcess) -> None:
    member.send_signal(signal.SIGTERM)
    assert member.wait(_END_S), f"{member.name} has not left"
    assert member.exit_code == 0, member.describe_end()


def _about(query_id: str) -> Callable[[str], bool]:
    return lambda what: what.startswith(f"{query_id}/")


def test_a_change_of_status_is_reported_once_in_json_and_avro(
    second_client: SecondClient, registry: SchemaRegistryServer, topic_name: str, tmp_path: Path
) -> None:
    topic = second_client.create(topic_name)
    stalls = lag_event(status="STALL", reason="no batch for 700 s", measured_at=3)
    (stalls_in_avro,) = in_avro(registry, topic, stalls)
    values = [
        encode(lag_event(measured_at=2)),
        stalls_in_avro,
        encode(stalls),
        encode(lag_event(measured_at=1, status="WARN")),
        encode(lag_event(measured_at=4)),
        None,
    ]
    second_client.produce(topic, values, key=key_of(stalls.query_id))
    example = ChildProcess(
        "the example",
        [
            sys.executable, str(EXAMPLES / "lag_consumer.py"), "--group", topic,
            "--bootstrap-servers", second_client.bootstrap_servers, "--lag-topic", topic,
        ],
        log_path=tmp_path / "log",
        environment=example_environment(SPARKLAG_REGISTRY__URL=registry.url),
        directory=tmp_path,
    )  # fmt: skip
    with running(example):
        wait_for(lambda: example.has_logged("forgotten"), "all is printed")
        _leave(example)
    output = [line for line in example.log_path.read_text().splitlines() if not line[:1].isdigit()]
    assert output == [
        "orders: new here -> OK",
        "orders: OK -> STALL (no batch for 700 s)",
        "orders: STALL -> OK",
        f"{stalls.query_id}: forgotten",
    ]
