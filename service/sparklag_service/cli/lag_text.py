"""What `sparklag lag` says of a query: a few lines for a person who was just woken. Pure."""

from __future__ import annotations

from typing import Final

from sparklag_schemas import LagEvent, PartitionLag
from sparklag_schemas.formatting import ago, clock_time, per_second, records, span, trend
from sparklag_schemas.origins import traits_of
from sparklag_service.view.lag_causes import causes, place

_ACTIVITIES: Final = {"running": "; one runs now", "waiting": "; it waits"}
_METHODS: Final = {"sampled": "by its timestamp", "interpolated": "by when the log grew"}


def lines(event: LagEvent, now_ms: int) -> list[tuple[str, str]]:
    """Heading and text: how far behind, how fast, how long until data is lost, why."""
    told = [("lag", _lag(event))]
    for heading, text in (
        ("oldest", _oldest(event)),
        ("pace", _pace(event)),
        ("retention", _retention(event, now_ms)),
        ("batch", _batch(event, now_ms)),
        ("why", "; ".join(causes(event, now_ms))),
        ("known", _known(event, now_ms)),
    ):
        if text:
            told.append((heading, text))
    return told


def status(event: LagEvent, now_ms: int) -> str:
    """The status, since when, and its reason."""
    since = ""
    if event.status != "OK" and event.status_since is not None:
        since = f" for {span(max(0.0, (now_ms - event.status_since) / 1000))}"
    return f"{event.status}{since}{f': {event.reason}' if event.reason else ''}"


def oldest(partition: PartitionLag) -> str:
    """The age of a partition's first unprocessed record; `≥` where that is the least it can be."""
    if partition.time_lag_s is None:
        return "unknown" if partition.lag != 0 else ""
    if partition.lag == 0:
        return ""
    return f"{'≥ ' if partition.time_lag_method == 'floor' else ''}{span(partition.time_lag_s)}"


def _lag(event: LagEvent) -> str:
    text = f"{records(event.total_lag)} records, worst partition {records(event.max_lag)}"
    if event.unknown_partitions:
        text += f", {event.unknown_partitions} partitions unknown"
    if event.in_flight is not None:
        text += f", {event.in_flight:,} in the batch that runs"
    return text


def _oldest(event: LagEvent) -> str:
    if event.max_time_lag_s is None or not event.total_lag:
        return ""
    topic, partition = max(
        (
            (topic, partition)
            for topic in event.topics
            for partition in topic.partitions
            if partition.time_lag_s is not None
        ),
        key=lambda found: found[1].time_lag_s or 0.0,
        default=(None, None),
    )
    text = f"unprocessed record {span(event.max_time_lag_s)} old"
    if topic is None or partition is None:
        return text
    if partition.time_lag_method == "floor":
        text = f"unprocessed record at least {span(event.max_time_lag_s)} old"
    how = _METHODS.get(partition.time_lag_method or "")
    return f"{text}, in {place(topic, partition)}{f', {how}' if how else ''}"


def _pace(event: LagEvent) -> str:
    if event.input_rate is None and event.processed_rate is None:
        return ""
    text = f"{per_second(event.input_rate)} come, {per_second(event.processed_rate)} are processed"
    if event.lag_trend is not None:
        text += f", lag {trend(event.lag_trend)}"
    if not event.total_lag:
        return text
    if event.catch_up_s is not None:
        return f"{text}; caught up in {span(event.catch_up_s)}"
    # The rates that the reason goes on with are in this line.
    why = (event.catch_up_reason or "").partition(":")[0]
    return f"{text}; caught up: {why}" if why else text


def _retention(event: LagEvent, now_ms: int) -> str:
    told = []
    if event.lost_records:
        told.append(f"{event.lost_records:,} records were deleted before they were read")
    if event.loss_expected_at is not None:
        left_s = max(0.0, (event.loss_expected_at - now_ms) / 1000)
        when = clock_time(event.loss_expected_at, now_ms)
        told.append(f"deletes unread records in {span(left_s)} ({when}) at these rates")
    elif event.min_headroom_s is not None:
        told.append(f"is {span(event.min_headroom_s)} behind the query, which stays ahead")
    elif event.min_headroom_records is not None:
        told.append(f"is {event.min_headroom_records:,} records behind the query")
    return "; ".join(told)


def _batch(event: LagEvent, now_ms: int) -> str:
    if traits_of(event.origin).commits_offsets:
        if event.processed_at is None:
            return "has not committed since it is watched"
        return f"committed {ago(event.processed_at, now_ms)}"
    which = event.batch_id if event.batch_id is not None else "none"
    text = f"{which} completed {ago(event.processed_at, now_ms)}"
    batch = event.batch
    if batch is not None:
        text += f", {batch.rows:,} rows"
        if batch.duration_ms is not None:
            text += f" in {span(batch.duration_ms / 1000)}"
    usual = []
    if event.usual_batch_s is not None:
        usual.append(f"up to {span(event.usual_batch_s)}")
    if event.usual_interval_s is not None:
        usual.append(f"one each {span(event.usual_interval_s)}")
    if usual:
        text += f" (usually {', '.join(usual)})"
    return text + _ACTIVITIES.get(event.activity or "", "")


def _known(event: LagEvent, now_ms: int) -> str:
    heard, measured = ago(event.observed_at, now_ms), ago(event.measured_at, now_ms)
    return (
        f"by {traits_of(event.origin).label or event.origin}, heard of {heard}, measured {measured}"
    )
