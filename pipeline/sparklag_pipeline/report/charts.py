"""Charts of the report as SVG, so that the page fetches nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Final

from sparklag_pipeline.report import formatting
from sparklag_pipeline.report.query_report import MINUTE_MS, Episode, QueryReport
from sparklag_pipeline.report.windows import RolledWindow

WIDTH: Final = 720
HEIGHT: Final = 120
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 8, 22
_MAX_POINTS: Final = 360
"""Of more, neighbours are combined: no screen shows them."""

Period = tuple[int, int]
"""Its start and its end, epoch milliseconds."""
_Points = Sequence[tuple[int, float | None]]


def charts(report: QueryReport, period: Period) -> Iterator[tuple[str, str]]:
    """Captions and charts of what is known over the time, with the episodes."""
    ages = _points(report.minutes, period, _highest_age)
    highest = max((age for _, age in ages if age is not None), default=None)
    if highest is not None:
        marks = [(0.0, "0"), (highest, formatting.duration(highest))]
        title = "Time lag, p95"
        yield title, _chart(title, ages, report.episodes, period, highest * 1.05 or 1.0, marks)
    shares = _points(report.minutes, period, _share)
    if any(share is not None for _, share in shares):
        marks = [(0.0, "0 %"), (1.0, "100 %")]
        title = "Share of time within target"
        yield title, _chart(title, shares, report.episodes, period, 1.05, marks)


def _highest_age(rows: Sequence[RolledWindow]) -> float | None:
    return max((row.time_lag_s[1] for row in rows if row.time_lag_s is not None), default=None)


def _share(rows: Sequence[RolledWindow]) -> float | None:
    known_s = sum(row.known_s for row in rows)
    return sum(row.within_target_s for row in rows) / known_s if known_s else None


def _points(
    rows: Sequence[RolledWindow],
    period: Period,
    value: Callable[[Sequence[RolledWindow]], float | None],
) -> _Points:
    """Times and values of steps of equal length; None where nothing is known."""
    since_ms, until_ms = period
    step_ms = max(MINUTE_MS, -(-(until_ms - since_ms) // _MAX_POINTS // MINUTE_MS) * MINUTE_MS)
    # The rows are in order, so no step appears twice.
    steps = groupby(rows, lambda row: (row.start_ms - since_ms) // step_ms)
    values = {step: value(list(of_step)) for step, of_step in steps}
    count = -(-(until_ms - since_ms) // step_ms)
    return [(since_ms + step * step_ms + step_ms // 2, values.get(step)) for step in range(count)]


def _chart(
    title: str,
    points: _Points,
    episodes: Sequence[Episode],
    period: Period,
    top: float,
    marks: Sequence[tuple[float, str]],
) -> str:
    since_ms, until_ms = period

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
        text = f"{formatting.utc(episode.from_ms)}, for {formatting.duration(episode.duration_s)}"
        parts.append(
            f'<rect class="missed" x="{left:.1f}" y="{_TOP}" width="{max(right - left, 1):.1f}"'
            f' height="{HEIGHT - _TOP - _BOTTOM}"><title>{escape(text)}</title></rect>'
        )
    for value, label in marks:
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(value):.1f}"'
            f' y2="{y(value):.1f}"/><text x="{_LEFT - 6}" y="{y(value) + 4:.1f}"'
            f' text-anchor="end">{escape(label)}</text>'
        )
    # A line across a gap would show values that nobody knows.
    for is_known, group in groupby(points, lambda point: point[1] is not None):
        line = [(x(at_ms), y(value)) for at_ms, value in group if value is not None]
        if len(line) > 1:
            path = " ".join(f"{across:.1f},{up:.1f}" for across, up in line)
            parts.append(f'<polyline class="line" points="{path}"/>')
        elif is_known:
            parts.append(
                f'<circle class="dot" cx="{line[0][0]:.1f}" cy="{line[0][1]:.1f}" r="1.5"/>'
            )
    for at_ms, anchor in ((since_ms, "start"), (until_ms, "end")):
        parts.append(
            f'<text x="{x(at_ms):.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">'
            f"{formatting.utc(at_ms)}</text>"
        )
    return "".join([*parts, "</svg>"])
