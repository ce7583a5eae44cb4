"""What the service says of itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product

from prometheus_client import CollectorRegistry, Metric, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.registry import Collector

from sparklag_service.counters import Counters
from sparklag_service.enrichment.record_times.counts import RecordTimeCounts
from sparklag_service.pipeline import Pipeline
from sparklag_service.refusals import KINDS


class SelfMetrics(Collector):
    """Counters, the fill of every queue, and the age of what the service knows."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def collect(self) -> Iterator[Metric]:
        """Every metric, as it is now."""
        meanings = Counters.meanings()
        for name, count in self._pipeline.counters.as_dict().items():
            yield CounterMetricFamily(f"sparklag_{name}", meanings[name], value=count)
        refused = CounterMetricFamily(
            "sparklag_refused_messages",
            "Messages that were not taken, by what is wrong; some are logged.",
            labels=["topic", "reason"],
        )
        settings, refusals = self._pipeline.settings, self._pipeline.counters.refusals
        # What begins with 0 can be seen to increase.
        known = product((settings.offsets_topic, settings.lag_topic), KINDS)
        for topic, reason in sorted({*known, *refusals.counts}):
            refused.add_metric([topic, reason], refusals.counts[topic, reason])
        yield refused
        for name, meaning, label, counts in (
            (
                "task_restarts",
                "Times a task failed, and was started again.",
                "task",
                self._pipeline.supervisor.restarts,
            ),
            (
                "failures",
                "Times a stage failed with one query; one trace of each is logged.",
                "stage",
                self._pipeline.failures.counts,
            ),
        ):
            family = CounterMetricFamily(f"sparklag_{name}", meaning, labels=[label])
            for value, count in counts.items():
                family.add_metric([value], count)
            yield family
        used = GaugeMetricFamily(
            "sparklag_limit_used_ratio",
            "How much of a limit of [limits] is used: at 1 what is new is refused.",
            labels=["limit"],
        )
        for limit, (taken, most) in self._pipeline.limit_shares.items():
            used.add_metric([limit], taken / most)
        yield used
        yield from self._gauges()
        up = GaugeMetricFamily(
            "sparklag_cluster_up",
            "Whether a broker of the Kafka cluster answers.",
            labels=["cluster"],
        )
        for cluster in self._pipeline.enricher.offsets:
            up.add_metric([cluster], cluster not in self._pipeline.enricher.unreachable)
        yield up
        yield from self._record_times()

    def _record_times(self) -> Iterator[Metric]:
        counts = {
            cluster: times.counts.as_dict()
            for cluster, times in self._pipeline.enricher.record_times.items()
        }
        for name, meaning in RecordTimeCounts.meanings().items():
            family = CounterMetricFamily(
                f"sparklag_record_times_{name}", meaning, labels=["cluster"]
            )
            for cluster, counted in counts.items():
                family.add_metric([cluster], counted[name])
            yield family

    def _gauges(self) -> Iterator[Metric]:
        pipeline = self._pipeline
        intake = pipeline.intake
        now_s = time.monotonic()
        found: list[tuple[str, str, float | None]] = [
            ("ready", "Whether every part is ready.", not pipeline.not_ready()),
            ("queries", "Queries in the view.", len(pipeline.view)),
            ("owned_queries", "Queries this instance measures.", len(pipeline.tracker.queries)),
            ("queue_size", "Observations that wait to be tracked.", pipeline.queue.qsize()),
            (
                "unpublished_queries",
                "Queries whose newest observation no acknowledged event covers yet.",
                pipeline.unpublished,
            ),
            ("intake_behind", "Observations in Kafka that are not taken in yet.", intake.behind),
            (
                "unreadable",
                "Checkpoints, patterns of them, and lists of groups that cannot be read.",
                sum(len(watcher.failing) for watcher in pipeline.watchers),
            ),
            (
                "mirror_failing",
                "Groups, brokers and clusters that the mirror cannot commit to.",
                None if pipeline.mirror is None else len(pipeline.mirror.failing),
            ),
            (
                "intake_age_seconds",
                "Since when it is not known that every observation was taken in.",
                None if intake.heard_all_s is None else now_s - intake.heard_all_s,
            ),
            ("stream_readers", "Readers of the live stream there are.", pipeline.live.reading),
            (
                "history_bytes",
                "Memory that the history takes.",
                pipeline.history.archive.held_bytes,
            ),
        ]
        for name, meaning, value in found:
            # Missing is not zero: what is not known has no sample.
            if value is not None:
                yield GaugeMetricFamily(f"sparklag_{name}", meaning, value=value)


class OwnMetrics:
    """Those, and what the process takes, as text."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(SelfMetrics(pipeline))
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def render(self, *, open_metrics: bool) -> bytes:
        """Whole lines; of OpenMetrics without its end."""
        if not open_metrics:
            return generate_latest(self._registry)
        encode, _ = choose_encoder("application/openmetrics-text; version=1.0.0")
        return encode(self._registry).removesuffix(b"# EOF\n")
