"""The pipeline, wired in the order of the data:

intake ──▶ asyncio queue ──▶ tracking ──▶ enrichment ──▶ evaluation ──▶ publishing ──▶ view
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from sparklag_schemas import MeasuredBy, ResolvedSettings
from sparklag_schemas.avro.formats import MessageFormats
from sparklag_schemas.runtime.queue import NewestQueue
from sparklag_schemas.runtime.tasks import run_in_layers
from sparklag_service.counters import Counters
from sparklag_service.enrichment.enricher import Enricher
from sparklag_service.evaluation.stage import Evaluation
from sparklag_service.history.history import History
from sparklag_service.history.refill import Refill
from sparklag_service.intakes import Delivery, Intake, SourceContext, delivery_queue
from sparklag_service.intakes.sources import Watchers
from sparklag_service.live.hub import LiveHub
from sparklag_service.mirror.mirror import Mirror
from sparklag_service.ownership import Assignment, Ownership
from sparklag_service.publishing.own_topics import OwnTopics
from sparklag_service.publishing.stage import Publishing
from sparklag_service.recording import StoreRecorder
from sparklag_service.supervision import Supervisor
from sparklag_service.tracking.stage import Tracking
from sparklag_service.tracking.tracked_queries import TrackedQueries
from sparklag_service.view.feed import Feed, ViewReader
from sparklag_service.view.view import View

MakeIntake = Callable[[NewestQueue[Delivery], Counters, MessageFormats], Intake]
Run = Callable[[], Awaitable[None]]


class Pipeline:
    """One instance of the service without its HTTP side. Create it on the loop it runs on."""

    def __init__(
        self, settings: ResolvedSettings, make_intake: MakeIntake, measured_by: MeasuredBy
    ) -> None:
        self.settings = settings
        self.counters = counters = Counters()
        self.supervisor = Supervisor()
        self.formats = formats = MessageFormats(settings)
        self.view = View(settings.limits, settings.silent_after_s)

        self.queue = delivery_queue(settings.queue_size, counters)
        self.intake = make_intake(self.queue, counters, formats)
        self.tracked = TrackedQueries(settings, self.queue, counters)
        assignment = Assignment(
            self.intake, self.tracked, self.view, measured_by, settings.silent_after_s
        )
        counters.refusals.known_name = assignment.known_name
        context = SourceContext(settings, self.queue, assignment.watches, self.tracked)
        self.watchers = Watchers(context, self.supervisor)
        self.group_poll_s = context.group_poll_s
        self.recording: StoreRecorder | None = None
        """None without a store, and in an embedded service: its driver records."""
        if settings.store.url is not None and measured_by == "service":
            self.recording = StoreRecorder(settings, settings.store.url, counters, formats)

        # The last stage first: each stage takes a method of the next one.
        self.enricher = Enricher(settings, self.tracked, self.supervisor)
        self.publishing = Publishing(
            settings,
            self.tracked,
            counters,
            formats,
            measured_by,
            owns=self.intake.owns,
            successor=self.view.successor,
            request=self.enricher.request,
        )
        self.evaluation = Evaluation(
            settings,
            self.tracked,
            self.enricher,
            counters,
            measured_by,
            offer=self.publishing.offer,
        )
        self.tracking = Tracking(
            settings,
            self.queue,
            self.tracked,
            counters,
            last_event=self.view.event,
            watches=assignment.watches,
            record=None if self.recording is None else self.recording.record,
            request=self.enricher.request,
        )

        self.live = LiveHub(settings, self.view, counters)
        self.history = History(settings, counters)
        self.view_reader = ViewReader(
            settings, self.view, counters, formats, Feed(counters, self.live, self.history)
        )
        self.refill = Refill(settings, self.view, self.history, counters, formats)
        self.mirror: Mirror | None = None
        """None without `mirror.queries`."""
        if settings.mirror.queries:
            self.mirror = Mirror(settings, self.view, self.tracked, self.intake.owns, counters)
        self.ownership = Ownership(
            settings,
            assignment,
            *(self.tracking, self.enricher, self.evaluation, self.publishing),
            self.view_reader,
            counters,
        )
        self.view_reader.feed.followers.append(self.ownership)
        self.topics = OwnTopics(settings)

    async def run(self) -> None:
        """Run until cancelled. While Kafka does not respond, InstanceState gives the reason."""
        async with AsyncExitStack() as stack:
            for part in (self.enricher, self.publishing):
                stack.push_async_callback(part.aclose)
            await self.topics.until_ready()
            await run_in_layers(
                *self._layers(), cancel_again_s=self.settings.shutdown_timeout_s / 2
            )

    def _layers(self) -> list[list[Coroutine[Any, Any, None]]]:
        """Supervised tasks by layer. The shutdown ends the last layer first."""
        keep = self.supervisor.keep

        def after_view(task: str, run: Run) -> Coroutine[Any, Any, None]:
            return keep(task, partial(self._after_view, run))

        recording, mirror = self.recording, self.mirror
        return [
            [keep("live stream", self.live.run), keep("view", self.view_reader.run)],
            [self.enricher.run()],
            [
                keep("topics", partial(self.topics.recreate, self.publishing.writer.failed)),
                keep("publisher", self.publishing.run),
            ],
            [
                after_view("tracker", self.tracking.run),
                after_view("refresh", self.ownership.refresh),
                after_view("evaluator", self.evaluation.run),
                after_view("watchers", self.watchers.run),
                after_view("history refill", self.refill.run),
            ],
            [] if recording is None else [keep("recording", recording.run)],
            # The intake leaves its group after it has committed what the stages published.
            [after_view("intake", partial(self.intake.run, self.ownership))],
            # The mirror commits while this instance owns its queries.
            [] if mirror is None else [after_view("mirror", mirror.run)],
        ]

    async def drain(self, timeout_s: float) -> bool:
        """Stop intake, and publish every delivery. Returns False if `timeout_s` was too short."""
        self.intake.pause()
        await self.watchers.stop()
        try:
            await asyncio.wait_for(self.queue.join(), timeout_s)
        except asyncio.TimeoutError:
            return False
        return True

    async def _after_view(self, run: Run) -> None:
        """Run after the view is read: it has the position of a query that restarts without data."""
        await self.view_reader.caught_up.wait()
        await run()
