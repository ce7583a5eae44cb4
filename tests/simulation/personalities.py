"""How brokers and drivers mislead those who listen to them: one table of all of it.

Every world has the usual ones, and of the others some that its seed picks.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.simulation.kafka import Log, Topic

if TYPE_CHECKING:
    from tests.simulation.world import World

FOREIGN: Final = "elsewhere"
"""A topic of another cluster: no cluster here has ever had it."""
_RECURRING_RUNS: Final = 4
_REPEATED_S: Final = 120.0
"""For how long a producer sends again what is not acknowledged."""


class Personality(NamedTuple):
    name: str
    """What it does."""
    weight: int
    """How often, compared with the others and with what else happens."""
    act: Callable[[World], Any]
    """Does it once; what it was done to, or None."""
    is_usual: bool = False


def _topic(world: World) -> Topic:
    return world.kafka.topics[world.random.choice(world.source_topics())]


def _log(world: World) -> Log:
    return world.random.choice(_topic(world).logs)


def _lose(world: World) -> str:
    network = world.kafka.network
    network.loss = world.random.choice((0.0, 0.02, 0.2))
    network.slow = world.random.choice((0.0, 0.02, 0.1))
    return f"{network.loss:.0%}, {network.slow:.0%} late"


def _cut_off(world: World) -> str:
    seconds = world.random.choice((5.0, 30.0, 120.0, 600.0))
    world.kafka.network.is_away = True
    world.loop.call_world(seconds, setattr, world.kafka.network, "is_away", False)
    return f"{seconds:g} s"


def _move_leader(world: World) -> str:
    topic = _topic(world)
    number = world.random.randrange(len(topic.logs))
    leader = topic.logs[number].leader = world.random.choice([None, *world.kafka.nodes])
    return f"{topic.name}[{number}] to {leader}"


def _retain(world: World) -> str:
    topic = _topic(world)
    for log in topic.logs:
        log.delete_before(log.end - world.random.choice((0, 10, 1_000)))
    return topic.name


def _create_anew(world: World) -> str:
    topic = _topic(world)
    world.kafka.delete_topic(topic.name)
    return world.kafka.create_topic(topic.name, len(topic.logs)).name


def _lie(world: World, kind: str) -> str:
    node, name = world.random.choice(world.kafka.nodes), _topic(world).name
    is_once = world.random.random() < 0.5
    world.kafka.lies[node, name] = kind, 0.0 if is_once else world.loop.now_s + 5.0
    return f"{name} by {node}"


def _expire(world: World) -> object:
    groups = world.kafka.groups.values()
    members = [(group, member) for group in groups for member in group.members]
    if not members:
        return None
    group, member = world.random.choice(members)
    group.expel(member)
    return member.process


def _throttle(world: World) -> int:
    node = world.random.choice(world.kafka.nodes)
    world.kafka.throttled_until_s[node] = world.loop.now_s + 120.0
    return node


def _move_coordinator(world: World) -> float:
    seconds = world.random.choice((1.0, 15.0))
    world.kafka.coordinator_moves_until_s = world.loop.now_s + seconds
    return seconds


def _repeat(world: World) -> str | None:
    query = world.random.choice(list(world.queries.values()))
    if not query.arrived or query.arrived[-1][1] < world.loop.now_s - _REPEATED_S:
        return None
    observation = world.random.choice([each for _, each in query.written[-3:]])
    world.loop.call_world(world.random.choice((0.01, 30.0, _REPEATED_S)), query.send, observation)
    return query.name


def _interrupt(world: World) -> None:
    for query in world.running()[:1]:
        query.end("finished", driver_end=world.random.choice((None, "stopped", "exited")))


def _recur(world: World) -> None:
    query = world.start_query()
    if query is not None:
        query.interval_s = world.random.choice((60.0, 120.0))
        for run in range(_RECURRING_RUNS):
            world.loop.call_world(run * query.interval_s, query.run_once)


def _overrun(world: World) -> None:
    for query in world.running()[-1:]:
        query.batch_began_s = world.loop.now_s


def _read_elsewhere(world: World) -> None:
    query = world.start_query(topics=[FOREIGN])
    if query is not None:
        query.positions = {FOREIGN: {0: 500}}
        query.complete_batch(1.0)


def _same_name(world: World) -> None:
    world.start_query(world.random.choice(list(world.queries.values())).name)


TABLE: Final = (
    Personality("the network loses some", 2, _lose, is_usual=True),
    Personality("Kafka is away", 1, _cut_off, is_usual=True),
    Personality("a leader moves, or is away", 3, _move_leader, is_usual=True),
    Personality("retention deletes records, read or not", 2, _retain, is_usual=True),
    Personality("a topic is created anew", 2, _create_anew, is_usual=True),
    Personality(
        "a topic gets a partition",
        1,
        lambda world: world.kafka.add_partition(_topic(world).name),
        is_usual=True,
    ),
    Personality("stale metadata: unknown, once or for 5 s", 6, lambda w: _lie(w, "unknown")),
    Personality("an answer without a topic", 3, lambda w: _lie(w, "absent")),
    Personality(
        "an open transaction",
        2,
        lambda w: _log(w).begin(w.loop.now_s, w.random.choice((30.0, 300.0, 1_800.0))),
    ),
    Personality("markers are the last records", 4, lambda w: _log(w).mark_end(w.loop.now_s)),
    Personality(
        "the last records are lost",
        2,
        lambda w: _log(w).truncate(w.random.choice((1, 100)), w.loop.now_s),
    ),
    Personality("the session of a living member expires", 3, _expire),
    Personality("a broker is throttled", 3, _throttle),
    Personality("the coordinator moves", 2, _move_coordinator),
    Personality("a message comes again, up to minutes later", 5, _repeat),
    Personality("a query has the name of another", 2, _same_name),
    Personality("Control-C ends a query, then its driver", 2, _interrupt),
    Personality("runs end, come back, and then stay away", 1, _recur),
    Personality("a batch takes far longer than usual", 4, _overrun),
    Personality("a checkpoint is of another cluster", 1, _read_elsewhere),
)


def personalities_of(seed: int) -> list[Personality]:
    """Those of a world. Half of the worlds have only the usual ones."""
    chosen = random.Random(f"personalities {seed}")
    rare = [each for each in TABLE if not each.is_usual]
    picked = chosen.sample(rare, chosen.choice((0, 0, 0, 3, 5, len(rare))))
    return [each for each in TABLE if each.is_usual or each in picked]
