"""Instances of the service die, hang, come and go; or their clock is wrong."""

from __future__ import annotations

import mmap
import random
import struct
import time
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
import pytest

from tests.deploy.charts import DEFAULTS, of_kind, render
from tests.faults.kubelet import Pods
from tests.faults.report import Row
from tests.faults.scene import Scene, scene
from tests.faults.service_processes import ServiceProcess
from tests.faults.tools import Tell
from tests.faults.truth import Clock, Span
from tests.local_kafka import LocalKafka
from tests.waiting import wait_for


class SteppedClock:
    """The clock of whatever runs with `environment`: the system's, until it is stepped.

    `library` is the built stepped_clock.c. (Not libfaketime: under version 0.9.10 `time.sleep` of
    Python 3.11 hangs or fails, because it fakes sleeps on the monotonic clock too.)
    """

    def __init__(self, library: Path, folder: Path) -> None:
        path = folder / "clock"
        path.write_bytes(struct.pack("=d", 0.0))
        with path.open("r+b") as file:
            self._mapped = mmap.mmap(file.fileno(), 8)
        self.offset_s = 0
        self.environment = {"LD_PRELOAD": str(library), "STEPPED_CLOCK_FILE": str(path)}

    def step(self, seconds: int) -> None:
        """Set it forward, or back where `seconds` are negative."""
        self.offset_s += seconds
        self._mapped[:] = struct.pack("=d", float(self.offset_s))

    def close(self) -> None:
        self._mapped.close()


pytestmark = [pytest.mark.kafka, pytest.mark.faults, pytest.mark.timeout(1800)]

KILLS = (8, pytest.param(50, marks=pytest.mark.soak))
FROZEN_S = 30.0
"""Longer than a session time-out: the others take its queries over."""
COMING_AND_GOING_S = 40.0
EVERY_S = 5.0
UNDISTURBED_S = 15.0
SESSION_S = 15.0
"""The group waits so long for an instance that ends without leaving it."""
HOUR_S = 3_600


@pytest.mark.slow
@pytest.mark.parametrize("kills", KILLS)
def test_service_killed(
    kills: int, kafka: LocalKafka, fault_report: Row, tmp_path: Path, tell: Tell, seed: int
) -> None:
    tell(f"killing at random moments; the same again: --faults-seed={seed}")
    chance = random.Random(seed)
    with scene(kafka.bootstrap_servers, tmp_path) as stage:
        stage.start_on_topics()
        (instance,) = stage.services.instances
        with stage.fault():
            for number in range(kills):
                instance.kill()
                restarted_s = time.time()
                instance.start()
                await_moment(stage, instance, number, restarted_s)
                time.sleep(chance.uniform(0.2, 2.0))
        stage.finish(fault_report, f"seed {seed}")


def await_moment(stage: Scene, instance: ServiceProcess, number: int, restarted_s: float) -> None:
    """After each fifth kill until it has published again, else until it serves."""
    if number % 5 == 0:
        wait_for(
            lambda: any(record.arrived_s > restarted_s for record in stage.recorder.records[-50:]),
            "it has published again",
        )
    else:
        wait_for(lambda: instance.url is not None, "it serves")


def test_service_killed_once(kafka: LocalKafka, fault_report: Row, tmp_path: Path) -> None:
    with scene(kafka.bootstrap_servers, tmp_path) as stage:
        stage.start_on_topics(services=2)
        killed = stage.services.instances[0]
        with stage.fault():
            killed.kill()
        stage.finish(fault_report, "one of two")


@pytest.mark.slow
def test_instances_join_and_leave(kafka: LocalKafka, fault_report: Row, tmp_path: Path) -> None:
    with scene(kafka.bootstrap_servers, tmp_path, partitions=6) as stage:
        stage.start_on_topics(services=3)
        with stage.fault():
            deadline = time.monotonic() + COMING_AND_GOING_S
            turn = 0
            while time.monotonic() < deadline:
                instance = stage.services.instances[turn // 2 % 3]
                if turn % 2 == 0:
                    instance.terminate()
                else:
                    instance.start()
                turn += 1
                time.sleep(EVERY_S)
            for instance in stage.services.instances:
                if instance not in stage.services.running:
                    instance.start()
                instance.await_ready()
        stage.finish(fault_report, f"{turn} times")


@pytest.mark.slow
def test_rolling_restart_of_three(kafka: LocalKafka, fault_report: Row, tmp_path: Path) -> None:
    with scene(kafka.bootstrap_servers, tmp_path, partitions=6) as stage:
        stage.start_on_topics(services=3)
        with stage.fault():
            for instance in stage.services.instances:
                instance.terminate()
                instance.start()
                instance.await_ready()
        stage.finish(fault_report)


@pytest.mark.slow
@pytest.mark.packaging
def test_rolling_update_of_the_chart(kafka: LocalKafka, fault_report: Row, tmp_path: Path) -> None:
    """With the probes, the grace period and the order of the chart's Deployment."""
    deployment = of_kind(render({**DEFAULTS, "replicaCount": 3}), "Deployment")["spec"]
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    with scene(kafka.bootstrap_servers, tmp_path, partitions=6) as stage, Pods(deployment) as pods:
        stage.start_on_topics(services=deployment["replicas"])
        before = list(stage.services.instances)
        for instance in before:
            pods.await_ready(instance)
        began_s = time.time()
        stage.flow(UNDISTURBED_S)
        undisturbed = stage.truth.judge(stage.recorder.records, Span(began_s, time.time()))
        with stage.fault():
            for instance in before:
                pods.await_ready(stage.services.add())
                pods.end(instance)
        assert undisturbed.longest_gap_s is not None
        verdict = stage.finish(
            fault_report,
            f"before it the longest gap is {undisturbed.longest_gap_s:.1f} s;"
            f" started by probe {pods.startup_attempts} at the latest",
        )
        assert verdict.longest_gap_s is not None
        # Queries are handed over. On a busy machine events are late before the update too.
        assert verdict.longest_gap_s < max(SESSION_S, 3 * undisturbed.longest_gap_s)
        assert not pods.restarted
        assert stage.services.running == stage.services.instances[len(before) :]


@pytest.mark.slow
def test_zombie_instance(kafka: LocalKafka, fault_report: Row, tmp_path: Path) -> None:
    with scene(kafka.bootstrap_servers, tmp_path) as stage:
        stage.start_on_topics(services=2)
        stage.flow(2)
        zombie = stage.services.instances[0]
        with stage.fault():
            zombie.freeze()
            frozen_s = time.time()
            # While it hangs, the other answers for its queries.
            stage.settle(frozen_s + 2, FROZEN_S)
            taken_over_s = time.time() - frozen_s
            stage.flow(max(0.0, FROZEN_S - taken_over_s))
            zombie.thaw()
        stage.finish(fault_report, f"taken over after {taken_over_s:.0f} s")


@pytest.mark.slow
def test_service_clock_stepped_back(
    kafka: LocalKafka, fault_report: Row, stepped_clock: Path, tmp_path: Path
) -> None:
    clock = SteppedClock(stepped_clock, tmp_path)
    with scene(
        kafka.bootstrap_servers,
        tmp_path,
        environment=clock.environment,
        clock=Clock(offsets_s=(0.0, -HOUR_S)),
    ) as stage:
        stage.start_on_topics()
        stage.flow(2)
        with stage.fault():
            clock.step(-HOUR_S)
            wait_for(lambda: shows_time_before(stage, time.time() - HOUR_S / 2), "it is stepped")
        stage.finish(fault_report, "by an hour")
        clock.close()


def shows_time_before(stage: Scene, moment_s: float) -> bool:
    url = stage.services.running[0].url
    shown = httpx.get(f"{url}/health/live", timeout=60).headers["date"]
    return parsedate_to_datetime(shown).timestamp() < moment_s


@pytest.mark.slow
def test_driver_clock_stepped_back(kafka: LocalKafka, fault_report: Row, tmp_path: Path) -> None:
    with scene(kafka.bootstrap_servers, tmp_path) as stage:
        stage.start_on_topics()
        stage.flow(2)
        with stage.fault():
            stage.drivers.clock_offset_s = -HOUR_S
        stage.finish(fault_report, "by an hour")
