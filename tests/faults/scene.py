"""Everything one fault meets: records, drivers, instances of the service, and who watches them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from sparklag_schemas.messages.topics import lag_topic, offsets_topic
from tests.faults.history import QueryHistory
from tests.faults.observation_flow import Drivers
from tests.faults.recorder import Published, Recorder
from tests.faults.report import Row
from tests.faults.service_processes import ServiceGroup, service_group
from tests.faults.spark_driver import Checkpoint
from tests.faults.truth import Clock, Span, Truth, Verdict, final_problems, newest_first_observed
from tests.faults.workload import Workload
from tests.second_client import SecondClient
from tests.waiting import wait_for

HEARTBEAT_S: Final = 3.0
OWN_PARTITIONS: Final = 4
_RECORDS_PER_S: Final = 200.0
_OBSERVE_EVERY_S: Final = 0.4
SETTLED_S: Final = 240.0
"""How long after a fault everything must be right again, on a busy machine."""
_SEED: Final = 20_260


class Scene:
    def __init__(
        self,
        client: SecondClient,
        names: Mapping[str, str],
        workload: Workload,
        drivers: Drivers,
        recorder: Recorder,
        services: ServiceGroup,
        clock: Clock,
    ) -> None:
        self.client = client
        """Past any proxy."""
        self.offsets_topic = names["offsets_topic"]
        self.lag_topic = names["lag_topic"]
        self.group_id = names["group_id"]
        self.workload = workload
        self.drivers = drivers
        self.recorder = recorder
        self.services = services
        self.clock = clock
        self.checkpoints: list[Checkpoint] = []
        self._fault: Span | None = None

    @property
    def truth(self) -> Truth:
        return Truth(self.workload.lives, self.histories, self.clock)

    @property
    def histories(self) -> dict[str, QueryHistory]:
        real = {history.query_id: history for history in map(Checkpoint.history, self.checkpoints)}
        return self.drivers.histories | real

    def add_topic(self, partitions: int = 3) -> str:
        topic = self.client.create(f"orders-{uuid.uuid4().hex[:8]}", partitions)
        self.workload.fill(topic, range(partitions))
        return topic

    def start(self, services: int = 1) -> None:
        """Let the observations flow and start so many instances; return once all is well."""
        self.drivers.start()
        self.services.start(services)
        self.settle(time.time())

    def start_on_topics(self, services: int = 1) -> Sequence[str]:
        """The usual scene: two topics, four queries on each, one of those idle and one dead."""
        topics = [self.add_topic(), self.add_topic()]
        for topic in topics:
            for _ in range(2):
                self.drivers.add(topic)
            self.drivers.add(topic, held=True)
            self.drivers.add(topic, dead=True)
        self.start(services)
        return topics

    def newest(self) -> dict[str, Published]:
        records = sorted(self.recorder.records, key=lambda record: record.place)
        accepted, _ = newest_first_observed(records)
        return {query_id: events[-1] for query_id, events in accepted.items()}

    def settle(self, since_s: float, timeout_s: float = SETTLED_S) -> None:
        """Wait until every query has a right, fresh event that was read after that moment."""

        def all_fresh() -> bool:
            newest, truth = self.newest(), self.truth
            return all(
                query_id in newest and truth.is_fresh(newest[query_id], since_s)
                for query_id in self.histories
            )

        wait_for(all_fresh, "every query has a fresh event", timeout_s)

    def statuses(self, topic: str) -> set[str]:
        return {
            partition["status"]
            for record in self.newest().values()
            for part in (record.event or {}).get("topics", ())
            for partition in part["partitions"]
            if part["topic"] == topic
        }

    def delete(self, topic: str) -> None:
        self.drivers.hold(topic)
        self.workload.dry(topic)
        self.client.delete(topic)
        self.workload.died(topic)

    def create_anew(self, topic: str, partitions: int = 3) -> None:
        self.client.create(topic, partitions)
        self.workload.fill(topic, range(partitions))

    def flow(self, seconds: float) -> None:
        """Let everything go on for a while: what is measured is that time."""
        time.sleep(seconds)

    @contextmanager
    def fault(self) -> Iterator[None]:
        """The fault is what happens in here. Afterwards all must be well again, without help."""
        began_s = time.time()
        yield
        self._fault = Span(began_s, time.time())

    @property
    def span(self) -> Span:
        assert self._fault is not None, "no fault has happened"
        return self._fault

    def finish(self, report: Row, note: str = "") -> Verdict:
        """Let it recover, end every flow, wait until the last numbers are there; fill the row.

        Fails where anything is lost or wrong, or a query has no fresh event after the fault.
        """
        stuck: list[str] = []
        try:
            self.settle(self.span.ended_s)
        except AssertionError as error:
            stuck.append(str(error))
        # The position first: so it is one of records that are there.
        self.drivers.finish()
        self.workload.stop()
        problems = self._final_problems()
        verdict = self.truth.judge(self.recorder.records, self.span)
        verdict.wrong += [*stuck, *(each for each in problems if each not in verdict.lost)]
        report.fill(verdict, note)
        assert not verdict.complaints(), verdict.complaints()
        return verdict

    def _final_problems(self) -> list[str]:
        ends = {topic: self.client.end_offsets(topic) for topic in self.workload.lives}
        problems: list[str] = []

        def exact() -> bool:
            truth, newest = self.truth, self.newest()
            # Of an observation without progress the numbers are right before it is published.
            problems[:] = truth.lost(self.recorder.records)
            for query_id in self.histories:
                problems.extend(truth.final_problems(newest.get(query_id), query_id, ends))
            return not problems

        def agreed() -> bool:
            problems.clear()
            for instance in self.services.running:
                truth = self.truth
                for query_id in self.histories:
                    message: dict[str, Any] | None = instance.lag(query_id)
                    result = (
                        ["final: it does not answer"]
                        if message is None
                        else final_problems(message, truth.expected(query_id, ends))
                    )
                    problems.extend(f"{instance.name}: {sentence}" for sentence in result)
            return not problems

        for condition, what in ((exact, "the last events"), (agreed, "what instances answer")):
            try:
                wait_for(condition, what, SETTLED_S / 2)
            except AssertionError:
                return problems
        return []


@contextmanager
def scene(
    bootstrap_servers: str,
    folder: Path,
    *,
    past_proxy: str | None = None,
    clock: Clock | None = None,
    environment: Mapping[str, str] | None = None,
    partitions: int = OWN_PARTITIONS,
    rate: float = _RECORDS_PER_S,
    names: Mapping[str, str] | None = None,
    **settings: object,
) -> Iterator[Scene]:
    """Own topics and a group of no instances yet, on the brokers that the service connects to.

    `past_proxy`: where everybody else reaches the same brokers. `names` are of own topics and
    group where they are there already.
    """
    direct = past_proxy or bootstrap_servers
    client = SecondClient(direct)
    if names is None:
        names = own_names(uuid.uuid4().hex[:8])
        create_own_topics(client, names, partitions)
    output = {
        "bootstrap_servers": bootstrap_servers,
        "topic_partitions": partitions,
        "heartbeat_s": HEARTBEAT_S,
        **names,
        **settings,
    }
    with ExitStack() as stack:
        workload = stack.enter_context(Workload(direct, rate))
        drivers = stack.enter_context(
            Drivers(
                workload,
                direct,
                names["offsets_topic"],
                read_from=bootstrap_servers,
                seed=_SEED,
                interval_s=_OBSERVE_EVERY_S,
                heartbeat_s=HEARTBEAT_S,
            )
        )
        recorder = stack.enter_context(Recorder(direct, names["lag_topic"], partitions))
        services = stack.enter_context(service_group(folder, output, environment))
        yield Scene(client, names, workload, drivers, recorder, services, clock or Clock())


def create_own_topics(client: SecondClient, names: Mapping[str, str], partitions: int) -> None:
    for spec in (
        offsets_topic(names["offsets_topic"], partitions, None),
        lag_topic(names["lag_topic"], partitions, None),
    ):
        config = {name.replace(".", "_"): value for name, value in spec.config.items()}
        client.create(spec.name, partitions, **config)


def own_names(unique: str) -> dict[str, str]:
    return {
        "offsets_topic": f"processed-offsets-{unique}",
        "lag_topic": f"consumer-lag-{unique}",
        "group_id": f"sparklag-{unique}",
    }
