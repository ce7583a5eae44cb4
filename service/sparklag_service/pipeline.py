"""The way of the data through the service, and its life:

intake ──▶ asyncio queue ──▶ tracker ──▶ enricher ──▶ evaluator ──▶ publisher ──▶ view
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from functools import lru_cache, partial
from typing import Any
from uuid import uuid4

from msgspec.structs import replace

from sparklag_kafka.errors import KAFKA_FAILURES
from sparklag_schemas import LagEvent, MeasuredBy, Observation, ResolvedSettings
from sparklag_schemas.clusters import ClusterNames
from sparklag_schemas.errors import OverLimit
from sparklag_schemas.formats import MessageFormats
from sparklag_schemas.runtime.clock import epoch_ms
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.runtime.tasks import end, run_together
from sparklag_service.counters import Counters
from sparklag_service.enrichment.enricher import Enricher
from sparklag_service.evaluation.evaluator import Evaluated, Evaluator
from sparklag_service.evaluation.measure_time import Moment
from sparklag_service.evaluation.query_history import resumed
from sparklag_service.evaluation.unknown_event import unknown_event
from sparklag_service.history.history import History
from sparklag_service.history.refill import Refill
from sparklag_service.intakes import Delivery, Intake, RebalanceHandler, delivery_queue
from sparklag_service.intakes.watchers import longest_interval_s, make_watchers
from sparklag_service.live.hub import LiveHub
from sparklag_service.mirror.mirror import Mirror
from sparklag_service.publishing.cadence import Cadence
from sparklag_service.publishing.lag_publisher import LagPublisher
from sparklag_service.publishing.topic_keeper import TopicKeeper
from sparklag_service.recording.store_recording import make_recording
from sparklag_service.rest.kept_offsets import KeptOffsets
from sparklag_service.supervision import QueryFailures, Supervisor
from sparklag_service.tracking.liveness import Liveness
from sparklag_service.tracking.pending_observations import PendingObservations
from sparklag_service.tracking.query_limits import (
    QueryLimits,
    measured_partitions,
    near_limits,
    observed_partitions,
)
from sparklag_service.tracking.query_state import QueryState, unplaced
from sparklag_service.tracking.tracker import Tracker
from sparklag_service.view.feed import Feed
from sparklag_service.view.service_state import InstanceStatus
from sparklag_service.view.view import Entry, View, has_ended
from sparklag_service.view.view_reader import ViewReader

_log = logging.getLogger(__name__)
_HAND_OVER_S = 5.0
_CANCEL_AGAIN_S = 3.0
_EVICTED_AT_ONCE = 100
_SILENT_HEARTBEATS = 3
"""A query that nobody has published for so long is adopted by the owner of its key; one that its
driver has said nothing of is called dead."""

MakeIntake = Callable[[NewestQueue[Delivery], Counters, RebalanceHandler, MessageFormats], Intake]


class Pipeline:
    """One instance of the service without its HTTP side. Create it on the loop it runs on."""

    def __init__(
        self,
        settings: ResolvedSettings,
        make_intake: MakeIntake,
        measured_by: MeasuredBy,
    ) -> None:
        self.settings = settings
        self.counters = Counters()
        self.supervisor = Supervisor()
        self.failures = QueryFailures()
        self.view = View(settings.limits)
        self._limits = QueryLimits(settings.limits)
        self.queue = delivery_queue(settings.queue_size, self._count_superseded)
        self._unpublished = PendingObservations(self.queue, self.counters)
        formats = MessageFormats(settings)
        self.intake = make_intake(self.queue, self.counters, self, formats)
        self.tracker = Tracker(ClusterNames(settings).alias_of)
        self.watchers = make_watchers(settings, self.queue, self._watches, self.tracker.queries)
        self._watching: asyncio.Task[None] | None = None
        self._measured_by = measured_by
        self._silent_s = _SILENT_HEARTBEATS * settings.heartbeat_s
        self._silence = Liveness(self._silent_s)
        self._unseen = Liveness(_SILENT_HEARTBEATS * longest_interval_s(settings))
        """Queries that no driver speaks of: what is looked at and cannot be seen."""
        self.enricher = Enricher(settings)
        self._evaluator = Evaluator(
            measured_by,
            settings.latest_max_age_s,
            lru_cache(4_096)(settings.thresholds_of),
            frozenset(
                alias
                for alias, cluster in settings.every_cluster.items()
                if cluster.groups.evaluator == "burrow"
            ),
        )
        self.kept = KeptOffsets(settings)
        self.recording = make_recording(settings, measured_by, self.counters, formats)
        self._publisher = LagPublisher(settings, self.intake.keeps, self.counters, formats)
        self.feed = Feed(self.counters)
        self.live = LiveHub(settings, self.view, self.counters)
        self.feed.add(self.live)
        self.history = History(settings, self.counters)
        self.feed.add(self.history)
        self.refill = Refill(settings, self.view, self.history, self.counters, formats)
        self._view_reader = ViewReader(settings, self.view, self.counters, formats, self.feed)
        self._cadence = Cadence(
            settings.publish_interval_s, settings.heartbeat_s, settings.refresh_interval_s
        )
        self._last: dict[str, Evaluated] = {}
        self._topics = TopicKeeper(settings)
        self._on_their_way: dict[str, asyncio.Task[None]] = {}
        self.mirror: Mirror | None = None
        """None where nothing is to be mirrored."""
        if settings.mirror.queries:
            self.mirror = Mirror(
                settings,
                self.view,
                self.tracker.queries,
                self.intake.keeps,
                self._silent_s,
                self.counters,
            )

    @property
    def unpublished(self) -> int:
        """Queries whose newest observation no acknowledged event covers yet."""
        return len(self._unpublished) + len(self._on_their_way)

    def not_ready(self) -> dict[str, str]:
        """The parts that are not ready, and why. Empty when all are.

        Another cluster that is away keeps nobody from being ready: see `degraded`.
        """
        home = self.enricher.unreachable.get(self.settings.cluster)
        parts: dict[str, str | None] = {
            **{f"task {task}": why for task, why in self.supervisor.failing.items()},
            "topics": self._topics.ready,
            "intake": self.intake.ready,
            "view": self._view_reader.ready,
            "schema registry": self._publisher.waiting,
            "kafka": home if self.tracker.queries else None,
        }
        return {part: reason for part, reason in parts.items() if reason is not None}

    def degraded(self) -> dict[str, str]:
        """Clusters that cannot be reached, checkpoints and groups that cannot be read, groups that
        cannot be mirrored to, an offset store that is away, and why: only what needs them
        suffers."""
        found = dict(self.enricher.unreachable)
        if (refused := self.counters.refusals.recent) is not None:
            found["messages"] = refused
        if (near := near_limits(self.limit_shares)) is not None:
            found["limits"] = near
        for part in (*self.watchers, self.recording, self.mirror):
            if part is not None:
                found.update(part.failing)
        return found

    @property
    def owned_queries(self) -> Collection[str]:
        """Ids of the queries that this instance measures."""
        return self.tracker.queries.keys()

    def status(self) -> InstanceStatus:
        """See ServiceState."""
        taken_in_s, enricher = self.intake.heard_all_s, self.enricher
        return InstanceStatus(
            ready=not self.not_ready(),
            queries=len(self.view),
            owned_queries=len(self.tracker.queries),
            queue_size=self.queue.qsize(),
            unpublished_queries=self.unpublished,
            intake_behind=self.intake.behind,
            unreadable=sum(len(watcher.failing) for watcher in self.watchers),
            mirror_failing=None if self.mirror is None else len(self.mirror.failing),
            intake_age_seconds=None if taken_in_s is None else time.monotonic() - taken_in_s,
            stream_readers=self.live.reading,
            history_bytes=self.history.archive.held_bytes,
            task_restarts=self.supervisor.restarts,
            stage_failures=self.failures.counts,
            limit_shares=self.limit_shares,
            clusters_up={alias: alias not in enricher.unreachable for alias in enricher.offsets},
            record_times={
                alias: times.counts.as_dict() for alias, times in enricher.record_times.items()
            },
        )

    @property
    def limit_shares(self) -> dict[str, tuple[int, int]]:
        """How much of each limit is used: its setting, used, limit."""
        return {**self._limits.shares, **self.view.shares}

    async def run(self) -> None:
        """Run until cancelled, Kafka there or not: while it is away, `not_ready` says why."""
        keep = self.supervisor.keep
        try:
            await self._topics.until_ready()
            await run_together(
                keep("live stream", self.live.run),
                keep("view", self._view_reader.run),
                *(keep(task, run) for task, run in self.enricher.tasks.items()),
                keep("topics", partial(self._topics.mend, self._publisher.failed)),
                keep("publisher", self._publisher.run),
                self._after_view("tracker", self._track),
                self._after_view("refresh", self._refresh),
                self._after_view("evaluator", self._evaluate),
                self._after_view("watchers", self._watch),
                self._after_view("history refill", self.refill.run),
                *([] if self.recording is None else [keep("recording", self.recording.run)]),
                # Ends before all of these: to leave the group it needs them.
                self._after_view("intake", self.intake.run),
                # Ends first, while what it is to commit is still this instance's.
                *([] if self.mirror is None else [self._after_view("mirror", self.mirror.run)]),
                patience_s=self.settings.shutdown_timeout_s / 2,
            )
        finally:
            await end(*self._on_their_way.values(), patience_s=_CANCEL_AGAIN_S)
            await self._publisher.aclose()
            await self.enricher.aclose()
            await self.kept.aclose()

    async def drain(self, timeout_s: float) -> bool:
        """Take nothing more in, publish what was; whether that was done in time."""
        self.intake.pause()
        if self._watching is not None:
            await end(self._watching, patience_s=_CANCEL_AGAIN_S)
        try:
            await asyncio.wait_for(self.queue.join(), timeout_s)
        except asyncio.TimeoutError:
            return False
        return True

    async def give_up(self) -> None:
        """See RebalanceHandler. What is in flight gets some time; an older event that arrives later
        does not replace a newer one: readers go by the version."""
        while not self.queue.empty():
            self._unpublished.drop(self.queue.get_nowait())
        leaving = [self._on_their_way[i] for i in self._on_their_way if not self.intake.keeps(i)]
        if leaving:
            _, late = await asyncio.wait(leaving, timeout=_HAND_OVER_S)
            await end(*late, patience_s=_CANCEL_AGAIN_S)
        for query_id in [i for i in self.tracker.queries if not self.intake.keeps(i)]:
            self._unpublished.drop(*self._hand_over(query_id))

    async def take_over(self) -> None:
        """See RebalanceHandler."""
        try:
            await asyncio.wait_for(self._view_reader.reach_end(), _HAND_OVER_S)
        except KAFKA_FAILURES:
            _log.warning("queries are taken over from a view that may lack their newest events")
        self._adopt()
        # All of them at once, before anything new is published: what this instance does not say
        # before it dies the next one may not find any more.
        self._ask(*self.tracker.queries.values())

    async def _after_view(self, task: str, run: Callable[[], Awaitable[None]]) -> None:
        """A query that restarts without data is where the view says it is: that comes first."""
        await self._view_reader.caught_up.wait()
        await self.supervisor.keep(task, run)

    async def _watch(self) -> None:
        """Beside the intake, until there is draining to do."""
        if self.watchers:
            runs = (self.supervisor.keep(watcher.name, watcher.run) for watcher in self.watchers)
            watching = asyncio.create_task(run_together(*runs, patience_s=_CANCEL_AGAIN_S))
            self._watching = watching
            try:
                await asyncio.wait({watching})
                if not watching.cancelled():
                    watching.result()
            finally:
                await end(watching, patience_s=_CANCEL_AGAIN_S)
        await asyncio.get_running_loop().create_future()

    def _watches(self, query_id: str) -> bool:
        """Whether this instance is to look by itself where a query is."""
        if query_id in self.tracker.queries:
            return self.intake.keeps(query_id)
        return self.intake.adopts(query_id) and not self._is_measured_in_driver(query_id)

    def _is_measured_in_driver(self, query_id: str) -> bool:
        """Whether an embedded service, beside its query, measures it: not this one."""
        entry = self.view.get(query_id)
        return (
            entry is not None
            and self._measured_by == "service"
            and entry.event.measured_by == "embedded"
            and entry.heard_s >= time.monotonic() - self._silent_s
        )

    async def _track(self) -> None:
        while True:
            delivery = await self.queue.get()
            self.counters.observations += 1
            query_id = delivery.observation.query_id
            try:
                self._take(delivery)
            except Exception as error:
                self._not_tracked(delivery.observation, error)
                # Read again it would only fail again.
                self._unpublished.settle(delivery)
            else:
                self.failures.well(query_id, "tracking")
            # A full queue is worked off without holding the loop.
            await asyncio.sleep(0)

    def _take(self, delivery: Delivery) -> None:
        observation = delivery.observation
        query_id = observation.query_id
        entry = self.view.get(query_id)
        if observation.run_id is not None:
            self._silence.heard(query_id, time.monotonic())
        elif not self._watches(query_id):
            # It has changed hands since it was looked at.
            self._unpublished.settle(delivery)
            return
        partitions = observed_partitions(observation)
        if partitions > self._limits.admitted(query_id):
            self._limits.admit(query_id, partitions)
        if not self.tracker.observe(observation, entry.event if entry else None, delivery.offset):
            if query_id not in self.tracker.queries:
                self._limits.release(query_id)
            self.counters.stale += 1
            self._unpublished.settle(delivery)
            return
        state = self.tracker.queries[query_id]
        if state.run_id is None:
            self._unseen.heard(query_id, time.monotonic())
            if self.recording is not None:
                self.recording.tell(observation)
        self._unpublished.add(delivery, state)
        self._ask(state)

    async def _refresh(self) -> None:
        """Lag is measured on the service's own clock too: that of a stuck query goes on growing."""
        due_s = time.monotonic()
        while True:
            if self.intake.heard_all_s is not None:
                self._silence.heard_all(self.intake.heard_all_s)
            self._unseen.heard_all(time.monotonic())
            self._adopt()
            self._let_go()
            self._ask(*self.tracker.queries.values())
            # Missed ones are not made up for.
            due_s = max(due_s + self.settings.refresh_interval_s, time.monotonic())
            await asyncio.sleep(due_s - time.monotonic())

    async def _evaluate(self) -> None:
        while True:
            measured = await self.enricher.next_measured()
            for state in measured.states:
                # It may have changed hands, or been measured in a newer state, in the meantime.
                last = self._last.get(state.query_id)
                outdated = last is not None and last.event.observed_at > state.observed_at_ms
                if state.query_id in self.tracker.queries and not outdated:
                    moment = Moment(epoch_ms(), time.monotonic(), measured.asked_s)
                    try:
                        self._offer(state, moment)
                    except Exception as error:
                        self.failures.add(state.query_id, "evaluation", error)
                        self._offer_unknown(state, moment)
                await asyncio.sleep(0)

    def _offer(self, state: QueryState, moment: Moment) -> None:
        """Publish the lag of a query, if that is due."""
        query_id = state.query_id
        self._limits.admit(query_id, measured_partitions(state, self.enricher.offsets))
        covered = self._unpublished.covered(state)
        silence = self._silence if state.run_id is not None else self._unseen
        evaluated = self._evaluator.evaluate(
            state,
            self.enricher.offsets,
            moment,
            event_id=str(uuid4()),
            cause=covered[0].observation.cause if covered else "refresh",
            previous=self._last.get(query_id),
            silent=silence.is_silent(query_id),
        )
        self.failures.well(query_id, "evaluation")
        self._last[query_id] = evaluated
        self.counters.measured += 1
        event = evaluated.event
        reason = self.failures.reason(query_id)
        if reason is None and silence.is_silent(query_id):
            reason = self._refused(query_id)
        if reason is not None:
            event = replace(event, status="UNKNOWN", reason=reason)
        self._publish_if_due(event, covered, state, moment)

    def _offer_unknown(self, state: QueryState, moment: Moment) -> None:
        """Say of a query that cannot be evaluated that it is not known."""
        event = unknown_event(
            state,
            self._measured_by,
            moment.now_ms,
            event_id=str(uuid4()),
            reason=self.failures.reason(state.query_id),
        )
        self._publish_if_due(event, self._unpublished.covered(state), state, moment)

    def _refused(self, query_id: str) -> str | None:
        """Why a query that has fallen silent may live: what its driver says is not taken."""
        said = self.counters.refusals.of_query(query_id, time.monotonic() - self._silent_s)
        return None if said is None else f"what its driver says is refused: {said}"

    def _publish_if_due(
        self, event: LagEvent, covered: tuple[Delivery, ...], state: QueryState, moment: Moment
    ) -> None:
        query_id = event.query_id
        if query_id in self._on_their_way or not self.intake.keeps(query_id):
            return
        if self._cadence.due(event, moment.now_s):
            self._cadence.published(event, moment.now_s)
            if covered:
                self._unpublished.take(query_id)
            self._send(query_id, self._publish(event, covered, state))

    def _send(self, query_id: str, sending: Coroutine[Any, Any, None]) -> None:
        """One message of a query at a time."""
        task = asyncio.create_task(sending)
        self._on_their_way[query_id] = task
        task.add_done_callback(lambda _: self._on_their_way.pop(query_id))

    async def _publish(
        self, event: LagEvent, covered: tuple[Delivery, ...], state: QueryState
    ) -> None:
        query_id = event.query_id
        try:
            published = await self._published(event, state)
        except asyncio.CancelledError:
            self._unpublished.drop(*covered)
            raise
        if published:
            self._unpublished.settle(*covered)
            newer = self._unpublished.state(query_id)
            if newer is not None:
                self._ask(newer)
            return
        # The next refresh measures and publishes it again.
        self._cadence.forget(query_id)
        if query_id in self.tracker.queries:
            self._unpublished.put_back(covered, state)
        else:
            self._unpublished.drop(*covered)

    async def _published(self, event: LagEvent, state: QueryState) -> bool:
        """Whether there is nothing more to do; where the event cannot be written, one that says so
        is."""
        try:
            published = await self._publisher.publish(event)
        except Exception as error:
            self.failures.add(event.query_id, "publishing", error)
        else:
            return published
        reason = self.failures.reason(event.query_id)
        # What can be written next time is not ill for that.
        self.failures.well(event.query_id, "publishing")
        unknown = unknown_event(
            state, self._measured_by, event.measured_at, event_id=event.event_id, reason=reason
        )
        try:
            return await self._publisher.publish(unknown)
        except Exception as error:
            self.failures.add(event.query_id, "publishing", error)
            return True

    def _ask(self, *states: QueryState) -> None:
        """Have them measured, all as of now."""
        asked_s = time.monotonic()
        for state in states:
            try:
                self.enricher.ask(state, asked_s)
            except Exception as error:
                self.failures.add(state.query_id, "enrichment", error)
                self._offer_unknown(state, Moment(epoch_ms(), asked_s, asked_s))
            else:
                self.failures.well(state.query_id, "enrichment")

    def _adopt(self) -> None:
        """Measure on what nobody else measures."""
        silent_before_s = time.monotonic() - self._silent_s
        for entry in self.view:
            query_id = entry.event.query_id
            if query_id in self.tracker.queries or not self.intake.adopts(query_id):
                continue
            embedded = entry.event.measured_by == "embedded"
            # An embedded service still runs beside its query, unless it has fallen silent.
            if not embedded or entry.heard_s < silent_before_s:
                try:
                    self._take_up(entry, silent=embedded or entry.event.status == "STOP")
                except Exception as error:
                    self._not_tracked(entry.event, error)

    def _take_up(self, entry: Entry, *, silent: bool) -> None:
        event = entry.event
        self._limits.admit(event.query_id, sum(len(topic.partitions) for topic in event.topics))
        self.counters.adopted += 1
        self.tracker.adopt(event)
        moment = Moment(epoch_ms(), time.monotonic(), time.monotonic())
        self._last[event.query_id] = Evaluated(event, resumed(event, moment))
        self._publisher.taken_over(event)
        self.enricher.resume(event, moment)
        silence = self._silence if event.run_id is not None else self._unseen
        silence.adopted(event.query_id, time.monotonic(), silent=silent)

    def _let_go(self) -> None:
        """Of queries that another measures now, and of those past their keep time."""
        for query_id, state in list(self.tracker.queries.items()):
            newest = self.view.get(query_id)
            if not self.intake.keeps(query_id):
                self._unpublished.drop(*self._hand_over(query_id))
            elif self._is_measured_in_driver(query_id) or (
                newest is not None and newest.event.observed_at > state.observed_at_ms
            ):
                self._unpublished.settle(*self._hand_over(query_id))
        expired_before_ms = epoch_ms() - int(self.settings.keep_s * 1000)
        for query_id in list(self.tracker.over(expired_before_ms)):
            if query_id not in self._on_their_way and query_id not in self._unpublished:
                self._send(query_id, self._forget(query_id))

        if self._limits.is_full:
            self._limits.is_full = False
            self._make_room()

    def _make_room(self) -> None:
        """Forget queries whose drivers ended or fell silent, those that did so first."""
        ended = (
            (state.observed_at_ms, query_id)
            for query_id, state in self.tracker.queries.items()
            if (last := self._last.get(query_id)) is not None and has_ended(last.event.status)
        )
        for _, query_id in sorted(ended)[:_EVICTED_AT_ONCE]:
            if query_id not in self._on_their_way and query_id not in self._unpublished:
                self.counters.evicted += 1
                self._send(query_id, self._forget(query_id))

    async def _forget(self, query_id: str) -> None:
        if await self._publisher.forget(query_id, self.tracker.queries[query_id].name):
            self.counters.tombstones += 1
            self.view.remove(query_id)
            self._unpublished.settle(*self._release(query_id))

    def _not_tracked(self, message: Observation | LagEvent, error: Exception) -> None:
        """It is known as a query that nothing is known of, as far as there is room for it."""
        query_id = message.query_id
        self.failures.add(query_id, "tracking", error)
        if isinstance(error, OverLimit):
            what = f"position of query {query_id}: {error}"
            self.counters.refusals.add(self.settings.offsets_topic, error.kind, what, query_id)
        if query_id in self.tracker.queries:
            return
        try:
            self._limits.admit(query_id, 0)
        except OverLimit:
            self.failures.forget(query_id)
        else:
            self.tracker.queries[query_id] = unplaced(message)

    def _hand_over(self, query_id: str) -> tuple[Delivery, ...]:
        """Another instance answers for it. The answer is what waited to be published."""
        self._publisher.let_go(query_id)
        return self._release(query_id)

    def _release(self, query_id: str) -> tuple[Delivery, ...]:
        """Measure it no more. The answer is what waited to be published."""
        self.counters.released += 1
        self.tracker.forget(query_id)
        self._cadence.forget(query_id)
        self._silence.forget(query_id)
        self._unseen.forget(query_id)
        self._last.pop(query_id, None)
        self._limits.release(query_id)
        self.failures.forget(query_id)
        return self._unpublished.take(query_id)

    def _count_superseded(self) -> None:
        self.counters.superseded += 1
