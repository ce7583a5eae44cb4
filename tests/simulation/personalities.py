"""How brokers and drivers mislead those who listen to them: one table of all of it.

Every world has the usual ones, and of the others some that its seed picks.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.simulation.kafka import Topic

if TYPE_CHECKING:
    from tests.simulation.world import World

FOREIGN: Final = "elsewhere"
"""A topic of another cluster: no cluster here has ever had it."""
_RECURRING_RUNS: Final = 4
_REPEATED_S: Final = 120.0
"""For how long a producer sends again what is not acknowledged."""


class Personality(NamedTuple):
    name: str
    weight: int
    """How often, compared with the others and with what else happens."""
    act: Callable[[World], str | None]
    """Does it once; the line of the trace, if it was done."""
    is_usual: bool = False


TABLE: Final[list[Personality]] = []
_Act = Callable[["World"], "str | None"]


def _personality(name: str, weight: int, is_usual: bool = False) -> Callable[[_Act], _Act]:
    def enter(act: _Act) -> _Act:
        TABLE.append(Personality(name, weight, act, is_usual))
        return act

    return enter


def _topic(world: World) -> Topic:
    return world.kafka.topics[world.random.choice(world.source_topics())]


# Brokers


@_personality("lossy", 2, is_usual=True)
def _lose(world: World) -> str:
    network = world.kafka.network
    network.loss = world.random.choice((0.0, 0.02, 0.2))
    network.slow = world.random.choice((0.0, 0.02, 0.1))
    return f"the network loses {network.loss:.0%}, {network.slow:.0%} late"


@_personality("away", 1, is_usual=True)
def _cut_off(world: World) -> str:
    seconds = world.random.choice((5.0, 30.0, 120.0, 600.0))
    world.kafka.network.is_away = True
    world.loop.call_world(seconds, setattr, world.kafka.network, "is_away", False)
    return f"Kafka is away for {seconds:g} s"


@_personality("leaders move", 3, is_usual=True)
def _move_leader(world: World) -> str:
    topic = _topic(world)
    number = world.random.randrange(len(topic.logs))
    leader = topic.logs[number].leader = world.random.choice([None, *world.kafka.nodes])
    return f"{topic.name}[{number}] is led by {leader}"


@_personality("deleted records", 2, is_usual=True)
def _retain(world: World) -> str:
    """Deletes records, whether they were read or not."""
    topic = _topic(world)
    for log in topic.logs:
        log.delete_before(log.end - world.random.choice((0, 10, 1_000)))
    return f"retention deletes records of {topic.name}"


@_personality("recreated topics", 2, is_usual=True)
def _create_anew(world: World) -> str:
    topic = _topic(world)
    world.kafka.delete_topic(topic.name)
    world.kafka.create_topic(topic.name, len(topic.logs))
    return f"{topic.name} is created anew"


@_personality("added partitions", 1, is_usual=True)
def _add_partition(world: World) -> str:
    topic = _topic(world)
    world.kafka.add_partition(topic.name)
    return f"{topic.name} has {len(topic.logs)} partitions"


@_personality("stale metadata", 6)
def _deny(world: World) -> str:
    """One broker's metadata answers that a topic is unknown (error 3), once or for 5 s."""
    return _lie(world, "unknown")


@_personality("answers without a topic", 3)
def _omit(world: World) -> str:
    return _lie(world, "absent")


def _lie(world: World, kind: str) -> str:
    node, name = world.random.choice(world.kafka.nodes), _topic(world).name
    is_once = world.random.random() < 0.5
    world.kafka.lies[node, name] = kind, 0.0 if is_once else world.loop.now_s + 5.0
    return f"broker {node} answers that {name} is {kind}"


@_personality("open transactions", 2)
def _open_transaction(world: World) -> str:
    """Records are appended, and readers of committed ones see none before it ends."""
    topic, seconds = _topic(world), world.random.choice((30.0, 300.0, 1_800.0))
    log = world.random.choice(topic.logs)
    log.transactions.append((log.end, world.loop.now_s + seconds))
    log.grow(1_000, world.loop.now_s)
    return f"a transaction is open in {topic.name} for {seconds:g} s"


@_personality("markers at the end", 4)
def _mark(world: World) -> str:
    """Markers are the last records."""
    topic = _topic(world)
    for log in topic.logs:
        log.mark_end(world.loop.now_s)
    return f"{topic.name} ends with markers"


@_personality("truncation", 2)
def _truncate(world: World) -> str:
    topic = _topic(world)
    log = world.random.choice(topic.logs)
    log.truncate(world.random.choice((1, 100)), world.loop.now_s)
    return f"{topic.name} has lost its last records"


@_personality("expiring sessions", 3)
def _expire(world: World) -> str | None:
    """The coordinator hears nothing of a member that lives."""
    groups = world.kafka.groups.values()
    members = [(group, member) for group in groups for member in group.members]
    if not members:
        return None
    group, member = world.random.choice(members)
    group.expel(member)
    return f"the session of {member.process} expires"


@_personality("throttling", 3)
def _throttle(world: World) -> str:
    node = world.random.choice(world.kafka.nodes)
    world.kafka.throttled_until_s[node] = world.loop.now_s + 120.0
    return f"broker {node} is throttled"


@_personality("moving coordinator", 2)
def _move_coordinator(world: World) -> str:
    seconds = world.random.choice((1.0, 15.0))
    world.kafka.coordinator_moves_until_s = world.loop.now_s + seconds
    return f"the coordinator moves for {seconds:g} s"


# Drivers


@_personality("copies", 5)
def _repeat(world: World) -> str | None:
    """What a driver has just written comes again, up to minutes later."""
    query = world.random.choice(list(world.queries.values()))
    if not query.arrived or query.arrived[-1][1] < world.loop.now_s - _REPEATED_S:
        return None
    observation = world.random.choice([each for _, each in query.written[-3:]])
    world.loop.call_world(world.random.choice((0.01, 30.0, _REPEATED_S)), query.send, observation)
    return f"a message of {query.name} is repeated"


@_personality("same names", 2)
def _same_name(world: World) -> str | None:
    """Another query has the name of one that runs beside it, or that has ended."""
    other = world.random.choice(list(world.queries.values()))
    query = world.start_query(name=other.name)
    return None if query is None else f"{query.query_id} is {other.name} too"


@_personality("interrupts", 2)
def _interrupt(world: World) -> str | None:
    """Control-C ends the query, without an exception, and then its driver."""
    if not (running := world.running()):
        return None
    query = world.random.choice(running)
    query.end("finished", driver_end=world.random.choice((None, "stopped", "exited")))
    return f"{query.name} is interrupted"


@_personality("recurring runs", 1)
def _recur(world: World) -> str | None:
    """Runs read all there is and end, come back at an interval, and then stay away."""
    query = world.start_query()
    if query is None:
        return None
    query.interval_s = world.random.choice((60.0, 120.0))
    for run in range(_RECURRING_RUNS):
        world.loop.call_world(run * query.interval_s, query.run_once)
    return f"{query.name} runs each {query.interval_s:g} s"


@_personality("long batches", 4)
def _overrun(world: World) -> str | None:
    """A batch takes far longer than usual. Its tasks end all the time."""
    if not (running := world.running()):
        return None
    query = world.random.choice(running)
    query.batch_began_s = world.loop.now_s
    return f"a batch of {query.name} takes long"


@_personality("foreign topics", 1)
def _read_elsewhere(world: World) -> str | None:
    """The checkpoint of a query that reads another cluster, as it seems with a wrong setting."""
    query = world.start_query(topics=[FOREIGN])
    if query is None:
        return None
    query.positions = {FOREIGN: {0: 500}}
    query.complete_batch(1.0)
    return f"{query.name} reads a topic of another cluster"


def personalities_of(seed: int) -> list[Personality]:
    """Those of a world. Half of the worlds have only the usual ones."""
    chosen = random.Random(f"personalities {seed}")
    rare = [each for each in TABLE if not each.is_usual]
    picked = chosen.sample(rare, chosen.choice((0, 0, 0, 3, 5, len(rare))))
    return [each for each in TABLE if each.is_usual or each in picked]
