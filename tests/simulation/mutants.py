"""Faults put into the service, one at a time: each is one that the invariants must not miss.

A mutant replaces text in the source of a function; the text has to be there once, so that none goes
stale unseen. The four hours of its `seed` find it.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final
from unittest import mock

from tests.simulation.hand_overs import HandOvers
from tests.simulation.world import World

_SERVICE: Final = "sparklag_service"


@dataclass(frozen=True)
class Mutant:
    """A fault, the seed that finds it, and its replacements: function, text, other text."""

    name: str
    seed: int
    replacements: tuple[tuple[str, str, str], ...]
    kind: type[World] = World

    @contextmanager
    def in_place(self) -> Iterator[None]:
        with ExitStack() as stack:
            for path in dict.fromkeys(path for path, _, _ in self.replacements):
                texts = [(old, new) for of, old, new in self.replacements if of == path]
                stack.enter_context(_replaced(path, texts))
            yield


def _mutant(name: str, seed: int, *replacements: tuple[str, str, str]) -> Mutant:
    return Mutant(name, seed, replacements)


def _of_hand_overs(name: str, *replacements: tuple[str, str, str]) -> Mutant:
    return Mutant(name, 1, replacements, HandOvers)


def _replaced(path: str, texts: list[tuple[str, str]]) -> Any:
    """`path` is `module:Class.method` or `module:function`, below the service by default, in the
    module that calls it."""
    module_name, _, qualified = path.partition(":")
    package = "" if module_name.startswith("sparklag_") else f"{_SERVICE}."
    module = import_module(f"{package}{module_name}")
    *owners, name = qualified.split(".")
    owner: Any = module
    for each in owners:
        owner = getattr(owner, each)
    function = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in texts:
        if source.count(old) != 1:
            raise ValueError(f"{path} has {source.count(old)} times: {old}")
        source = source.replace(old, new)
    namespace: dict[str, Any] = {}
    exec(f"from __future__ import annotations\n{source}", function.__globals__, namespace)
    return mock.patch.object(owner, name, namespace[name])


MUTANTS: Final = (
    _mutant(
        "committed before the acknowledgement",
        3,
        (
            "tracking.stage:Tracking._track",
            "tracked.add_pending(query, delivery)",
            "tracked.add_pending(query, delivery); delivery.done()",
        ),
    ),
    _mutant(
        "a failed write counts as done",
        1,
        ("publishing.stage:Publishing._publish", "if published:", "if True:"),
    ),
    _mutant(
        "a failed write loses its observation",
        16,
        ("publishing.stage:Publishing._publish", "tracked.put_back", "tracked.settle"),
    ),
    _mutant(
        "what a revocation drops counts as done",
        4,
        (
            "tracking.tracked_queries:TrackedQueries.drop",
            "self._queue.task_done()",
            "self.settle(delivery)",
        ),
    ),
    _mutant(
        "an event settles an observation that is newer",
        1,
        ("tracking.tracked_queries:TrackedQuery.covered", "self.state is state", "True"),
    ),
    _mutant(
        "an observation that a newer one covers is never done",
        25,
        ("tracking.tracked_queries:TrackedQueries.add_pending", "settle(older)", "drop(older)"),
    ),
    _mutant(
        "the newest offset done is committed, whatever is open before it",
        2,
        (
            "intakes.topic_messages:CommitLedger.done",
            "self._done.add(offset)",
            "self._done.add(offset); self._next = max(self._next or 0, offset + 1)",
        ),
    ),
    _mutant(
        "one offset too many is committed",
        2,
        ("intakes.topic_messages:CommitLedger.done", "popleft() + 1", "popleft() + 2"),
    ),
    _mutant(
        "a partition is read on from one behind what was committed",
        14,
        ("intakes.topic:TopicIntake._take_over", "else offset)", "else offset + 1)"),
    ),
    _mutant(
        "a query that another instance owns is kept",
        25,
        (
            "ownership:Ownership.on_revoked",
            "[i for i in self._tracked if not self._intake.owns(i)]",
            "()",
        ),
        ("ownership:Ownership._release_unowned", "not self._intake.owns(query_id)", "False"),
    ),
    _mutant(
        "taken over before the view was read",
        25,
        ("ownership:Ownership.on_assigned", "self._view_reader.reach_end()", "asyncio.sleep(0)"),
        ("pipeline:Pipeline._after_view", "self.view_reader.caught_up.wait()", "asyncio.sleep(0)"),
    ),
    _mutant(
        "only the last minutes are read, though an outage was before them",
        3,
        ("sparklag_kafka.clients.consumer:RecentRecords.seek", "range(_STEPS_BACK)", "range(1)"),
        (
            "sparklag_kafka.clients.consumer:RecentRecords.seek",
            "back_ms // _HEARTBEATS_READ_BACK",
            "back_ms",
        ),
        ("ownership:Ownership.on_assigned", "await self._request_tracked()", "pass"),
    ),
    _mutant(
        "a version falls with the driver's clock",
        17,
        (
            "tracking.tracker:Tracker._merged",
            "observed_at=max(state.observed_at, current.observed_at + 1)",
            "observed_at=state.observed_at",
        ),
    ),
    _mutant(
        "what is read again is tracked again",
        32,
        ("tracking.tracker:_is_old", "offset <= current.observation_offset", "False"),
    ),
    _mutant(
        "a run without a batch loses the query's position",
        3,
        (
            "tracking.tracker:Tracker._merged",
            "return _with_newer_position(state, current)",
            "return state",
        ),
    ),
    _mutant(
        "the position of a query that was taken over is not restored",
        2,
        (
            "tracking.stage:Tracking._track",
            "current is None and (last_event",
            "False and (last_event",
        ),
        ("tracking.stage:Tracking.adopt", "self.tracked.adopt(event, at.now_s)", "pass"),
    ),
    _mutant(
        "a driver that speaks again stays dead",
        16,
        ("tracking.tracked_queries:TrackedQuery.received", "at_s, False", "at_s, self.is_silent"),
    ),
    _mutant(
        "a dead query lives again under its next owner",
        4,
        ("tracking.tracked_queries:TrackedQueries.adopt", " or was_silent", ""),
    ),
    _mutant(
        "a query that nothing changes is published no more",
        4,
        ("publishing.published_query:Cadence.due", "since_s >= settings.heartbeat_s", "False"),
    ),
    _mutant(
        "two events of a query are in flight",
        26,
        ("publishing.stage:Publishing.offer", "query.in_flight is not None or ", ""),
    ),
    _mutant(
        "that a topic was created anew is not asked",
        69,
        ("enrichment.offset_table:OffsetTable.take_latest", "< _MAX_RATE", "< 0"),
    ),
    _mutant(
        "a topic is gone after a single answer of one broker",
        21,
        (
            "enrichment.offset_table:OffsetTable._is_confirmed",
            "return is_long and",
            "return True or",
        ),
    ),
    _mutant(
        "a query is hidden by one that ran beside it",
        23,
        ("view.view:follows", "if event.runs.first_at", "if False and event.runs.first_at"),
    ),
    _mutant(
        "runs that stay away are not missed",
        5,
        ("evaluation.status:run_overdue", "if away_s", "if True or away_s"),
    ),
    _mutant(
        "an open transaction is not told",
        21,
        ("evaluation.topic_measure:TopicMeasure._open_transaction", "waiting is None", "True"),
    ),
    _mutant(
        "a lag counts one record too many",
        1,
        (
            "evaluation.topic_measure:TopicMeasure._partition_lags",
            "read.offset, read.offset - at",
            "read.offset, read.offset - at + 1",
        ),
    ),
    _of_hand_overs(
        "a change of owner counts as progress of the query",
        (
            "evaluation.stage:resume_history",
            'first_read_s is not None or event.behind_since or event.status in ("STALL", "STOP")',
            "False",
        ),
    ),
    _of_hand_overs(
        "a change of owner forgets how the lag of partitions has changed",
        (
            "evaluation.query_history:resume_trends",
            "rises=rises, unmoved=unmoved, flags=flags, ",
            "",
        ),
    ),
    _of_hand_overs(
        "a batch of a dead driver runs",
        ("evaluation.evaluator:Evaluator.evaluate", "running_batch=None, activity=None", ""),
    ),
    _of_hand_overs(
        "a batch is never overdue",
        ("evaluation.query_history:QueryHistory.overdue", "if not usual_s or", "if True or"),
    ),
)
