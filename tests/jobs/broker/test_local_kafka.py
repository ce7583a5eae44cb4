"""The local broker: real, by itself, and gone when it should be."""

from __future__ import annotations

import shutil
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from sparklag_jobs.broker import local_kafka
from sparklag_jobs.broker.child_process import free_ports
from sparklag_jobs.broker.local_kafka import Ports
from sparklag_jobs.errors import BrokerFailed
from tests.local_kafka import LocalKafka
from tests.processes import process_is_gone
from tests.scripts import running_script
from tests.second_client import SecondClient
from tests.waiting import DEADLINE_S, wait_for

pytestmark = pytest.mark.kafka


def test_asking_for_a_topic_does_not_create_it(kafka: LocalKafka, topic_name: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.list_topics(topic_name, timeout=30)
    assert topic_name not in admin.list_topics(timeout=30).topics


def test_a_broker_of_an_ended_thread_survives_freeze_restart_and_kill(tmp_path: Path) -> None:
    broker = LocalKafka(directory=tmp_path / "broker")
    # The system ends a child whose parent, a thread here, ends.
    starter = threading.Thread(target=broker.start)
    starter.start()
    starter.join()
    try:
        address = broker.bootstrap_servers
        client = SecondClient(address)
        client.create("kept")
        broker.freeze()
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": address}).list_topics(timeout=1)
        broker.thaw()
        client.produce("kept", [b"x"] * 3)
        broker.restart()
        client.produce("kept", [b"x"] * 4)
        broker.kill()
        assert not broker.is_alive()
        broker.start()

        assert broker.bootstrap_servers == address
        assert client.end_offsets("kept") == {0: 7}
    finally:
        broker.close()
    # A folder of its owner's is kept.
    assert broker.log_path == tmp_path / "broker" / "broker.log"
    assert broker.log_path.exists()


def test_a_port_taken_meanwhile_costs_another_attempt_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as squatter:
        squatter.bind((local_kafka.HOST, 0))
        squatter.listen()
        taken = squatter.getsockname()[1]
        offered = [Ports(*free_ports(len(Ports._fields)))._replace(client=taken)]

        def ports(count: int) -> Sequence[int]:
            return offered.pop() if offered else free_ports(count)

        monkeypatch.setattr(local_kafka, "free_ports", ports)
        with LocalKafka() as broker:
            assert broker.bootstrap_servers != f"{local_kafka.HOST}:{taken}"
            SecondClient(broker.bootstrap_servers).create("there")
            folder = broker.directory
    assert not folder.exists()


def test_a_broker_that_does_not_come_up_shows_its_logs_end() -> None:
    broker = LocalKafka(properties={"log.retention.ms": "a while"})
    with pytest.raises(BrokerFailed, match="a while"):
        broker.start()
    broker.close()
    assert not broker.is_alive()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ties a child to its parent there")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_it_is_gone_when_its_owner_is(end: signal.Signals) -> None:
    # A shell's background job, as CI may be, hands down SIGINT ignored.
    program = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from tests.local_kafka import LocalKafka
with LocalKafka() as broker:
    print(broker.pid, broker.directory, flush=True)
    time.sleep(600)
"""
    with running_script(program) as (owner, line):
        pid, folder = line.split()
        owner.send_signal(end)
        owner.wait(DEADLINE_S)
    wait_for(lambda: process_is_gone(int(pid)), what="the broker's end")
    assert Path(folder).exists() == (end is signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def test_only_the_first_node_is_the_controller_of_its_cluster() -> None:
    with pytest.raises(ValueError, match="node 1 is the controller"):
        LocalKafka(node_id=2)
