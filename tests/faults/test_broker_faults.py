"""A broker, or the way to it, fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.report import Row
from tests.faults.scene import scene
from tests.faults.toxiproxy import Proxy, Toxiproxy
from tests.faults.truth import Clock
from tests.local_kafka import LocalKafka

pytestmark = [pytest.mark.kafka, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900)]


def test_broker_restarted(fault_report: Row, tmp_path: Path) -> None:
    with LocalKafka() as broker, scene(broker.bootstrap_servers, tmp_path) as stage:
        stage.start_on_topics()
        stage.flow(3)
        with stage.fault():
            broker.restart()
        stage.finish(fault_report)


@pytest.mark.parametrize("fault", ["cut", "delayed 700 ms", "black-holed"])
def test_connection(fault: str, fault_report: Row, toxiproxy: Toxiproxy, tmp_path: Path) -> None:
    def break_it(proxy: Proxy) -> float:
        """How long it is to last."""
        match fault:
            case "cut":
                proxy.cut()
                return 5.0
            case "black-holed":
                proxy.swallow()
                return 15.0
            case _:
                proxy.delay(0.7)
                return 10.0

    proxy = toxiproxy.proxy("kafka")
    # An answer is on its way for 0.7 s: when in between the offset was read nobody can know.
    clock = Clock(tolerance_s=1.8) if fault.startswith("delayed") else Clock()
    with LocalKafka(advertised=proxy.address) as broker:
        proxy.lead_to(broker.bootstrap_servers)
        with scene(
            proxy.address, tmp_path, past_proxy=broker.internal_servers, clock=clock
        ) as stage:
            stage.start_on_topics()
            stage.flow(3)
            with stage.fault():
                stage.flow(break_it(proxy))
                proxy.heal()
            stage.finish(fault_report)
