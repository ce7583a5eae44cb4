"""The service's own metrics: counters, the fill of every queue, and what the process takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import product

from prometheus_client import CollectorRegistry, Metric, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.registry import Collector

from sparklag_service.counters import KINDS, Counters
from sparklag_service.enrichment.record_times.sampler import RecordTimeCounts
from sparklag_service.view.service_state import ServiceState


class ServiceMetrics(Collector):
    """Of one instance, by prometheus_client."""

    def __init__(self, state: ServiceState) -> None:
        self._state = state
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def render(self, *, open_metrics: bool) -> bytes:
        """Whole lines; of OpenMetrics without its end."""
        if not open_metrics:
            return generate_latest(self._registry)
        encode, _ = choose_encoder("application/openmetrics-text; version=1.0.0")
        return encode(self._registry).removesuffix(b"# EOF\n")

    def collect(self) -> Iterator[Metric]:
        """Every metric, as it is now."""
        counters, status = self._state.counters, self._state.status()
        meanings = Counters.meanings()
        for name, count in counters.as_dict().items():
            yield CounterMetricFamily(f"sparklag_{name}", meanings[name], value=count)
        yield self._refused()
        yield _labelled(
            CounterMetricFamily,
            "task_restarts",
            "Restarts of a task after a failure.",
            "task",
            status.task_restarts,
        )
        yield _labelled(
            CounterMetricFamily,
            "failures",
            "Times a stage failed with one query; one trace of each is logged.",
            "stage",
            status.stage_failures,
        )
        yield _labelled(
            GaugeMetricFamily,
            "limit_used_ratio",
            "Used share of a limit of [limits]; at 1 new input is refused.",
            "limit",
            {limit: used / most for limit, (used, most) in status.limit_shares.items()},
        )
        for each in fields(status):
            value = getattr(status, each.name)
            # Missing is not zero: an unknown value has no sample.
            if "meaning" in each.metadata and value is not None:
                yield GaugeMetricFamily(
                    f"sparklag_{each.name}", each.metadata["meaning"], value=value
                )
        yield _labelled(
            GaugeMetricFamily,
            "cluster_up",
            "Whether a broker of the Kafka cluster answers.",
            "cluster",
            status.clusters_up,
        )
        for name, meaning in RecordTimeCounts.meanings().items():
            counts = {cluster: of_all[name] for cluster, of_all in status.record_times.items()}
            yield _labelled(CounterMetricFamily, f"record_times_{name}", meaning, "cluster", counts)

    def _refused(self) -> Metric:
        family = CounterMetricFamily(
            "sparklag_refused_messages",
            "Refused messages, by reason; the log has some of them.",
            labels=["topic", "reason"],
        )
        settings, counts = self._state.settings, self._state.counters.refusals.counts
        # What begins with 0 can be seen to increase.
        possible = product((settings.offsets_topic, settings.lag_topic), KINDS)
        for topic, reason in sorted({*possible, *counts}):
            family.add_metric([topic, reason], counts[topic, reason])
        return family


def _labelled(
    family_type: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    meaning: str,
    label: str,
    values: Mapping[str, float],
) -> Metric:
    """One sample for each value of `label`."""
    family = family_type(f"sparklag_{name}", meaning, labels=[label])
    for label_value, value in values.items():
        family.add_metric([label_value], value)
    return family
