"""Charts of the report as SVG: made here, so that the page needs nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Final

from sparklag_pipeline.report import formatting
from sparklag_pipeline.report.episodes import Episode
from sparklag_pipeline.report.query_report import QueryReport
from sparklag_pipeline.report.windows import RolledWindow

WIDTH: Final = 720
HEIGHT: Final = 120
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 8, 22
_MOST_POINTS: Final = 360
"""More are put together: no screen shows them."""


def age_chart(report: QueryReport, since_ms: int, until_ms: int) -> str:
    """Time lag p95 over time, with the episodes; empty where it was never known."""
    points = _points(
        report.minutes,
        since_ms,
        until_ms,
        lambda rows: max(
            (row.time_lag_s[1] for row in rows if row.time_lag_s is not None), default=None
        ),
    )
    highest = max((y for _, y in points if y is not None), default=None)
    if highest is None:
        return ""
    top = highest * 1.05 or 1.0
    return _chart(
        "Time lag, p95",
        points,
        report.episodes,
        since_ms,
        until_ms,
        top,
        [(0.0, "0"), (highest, formatting.duration(highest))],
    )


def target_chart(report: QueryReport, since_ms: int, until_ms: int) -> str:
    """The share of known time within target, over time, with the episodes."""
    points = _points(report.minutes, since_ms, until_ms, _share)
    if all(y is None for _, y in points):
        return ""
    marks = [(0.0, "0 %"), (1.0, "100 %")]
    return _chart("Within target", points, report.episodes, since_ms, until_ms, 1.05, marks)


def _share(rows: Sequence[RolledWindow]) -> float | None:
    known_s = sum(row.known_s for row in rows)
    return sum(row.within_target_s for row in rows) / known_s if known_s else None


def _points(
    rows: Sequence[RolledWindow],
    since_ms: int,
    until_ms: int,
    value: Callable[[Sequence[RolledWindow]], float | None],
) -> list[tuple[int, float | None]]:
    """(moment, value) of stretches of equal length; None where nothing is known."""
    step_ms = max(60_000, -(-(until_ms - since_ms) // _MOST_POINTS // 60_000) * 60_000)
    # In order they come: no step appears twice.
    in_steps = groupby(rows, lambda row: (row.start_ms - since_ms) // step_ms)
    by_step = {at: list(found) for at, found in in_steps}
    count = -(-(until_ms - since_ms) // step_ms)
    return [
        (since_ms + at * step_ms + step_ms // 2, value(by_step[at]) if at in by_step else None)
        for at in range(count)
    ]


def _chart(
    title: str,
    points: Sequence[tuple[int, float | None]],
    episodes: Sequence[Episode],
    since_ms: int,
    until_ms: int,
    top: float,
    marks: Sequence[tuple[float, str]],
) -> str:
    def x(at_ms: float) -> float:
        share = (at_ms - since_ms) / (until_ms - since_ms)
        return _LEFT + min(max(share, 0.0), 1.0) * (WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return HEIGHT - _BOTTOM - value / top * (HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="{escape(title)}"><title>{escape(title)}</title>'
    ]
    for episode in episodes:
        left, right = x(episode.from_ms), x(episode.to_ms)
        told = (
            f"{formatting.moment(episode.from_ms)}, for {formatting.duration(episode.duration_s)}"
        )
        parts.append(
            f'<rect class="missed" x="{left:.1f}" y="{_TOP}" width="{max(right - left, 1):.1f}"'
            f' height="{HEIGHT - _TOP - _BOTTOM}"><title>{escape(told)}</title></rect>'
        )
    for value, label in marks:
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(value):.1f}"'
            f' y2="{y(value):.1f}"/><text x="{_LEFT - 6}" y="{y(value) + 4:.1f}"'
            f' text-anchor="end">{escape(label)}</text>'
        )
    for stretch in _known(points):
        path = " ".join(f"{x(at_ms):.1f},{y(value):.1f}" for at_ms, value in stretch)
        if len(stretch) > 1:
            parts.append(f'<polyline class="line" points="{path}"/>')
        else:
            at_ms, value = stretch[0]
            parts.append(f'<circle class="dot" cx="{x(at_ms):.1f}" cy="{y(value):.1f}" r="1.5"/>')
    for at_ms, anchor in ((since_ms, "start"), (until_ms, "end")):
        parts.append(
            f'<text x="{x(at_ms):.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">'
            f"{formatting.moment(at_ms)}</text>"
        )
    return "".join([*parts, "</svg>"])


def _known(points: Sequence[tuple[int, float | None]]) -> Iterator[list[tuple[int, float]]]:
    """Stretches without a hole: a line over one would tell what nobody knows."""
    stretch: list[tuple[int, float]] = []
    for at_ms, value in points:
        if value is not None:
            stretch.append((at_ms, value))
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch
