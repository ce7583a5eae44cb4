"""The report as an HTML page with charts as inline SVG. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Final

from sparklag_jobs.history.rollups import RolledWindow
from sparklag_jobs.report import screen
from sparklag_jobs.report.query_report import MINUTE_MS, Episode, QueryReport

WIDTH: Final = 720
HEIGHT: Final = 120
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 8, 22
_MAX_POINTS: Final = 360
"""More points are combined with their neighbours: no screen shows them."""
Period = tuple[int, int]
"""Start and end, epoch milliseconds."""
_Points = Sequence[tuple[int, float | None]]


def charts(report: QueryReport, period: Period) -> Iterator[tuple[str, str]]:
    """Captions and charts of the known values over time, with the episodes."""
    ages = _points(report.minutes, period, _highest_age)
    highest = max((age for _, age in ages if age is not None), default=None)
    if highest is not None:
        marks = [(0.0, "0"), (highest, screen.duration(highest))]
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
    """Times and values of steps of equal length; None for an unknown value."""
    since_ms, until_ms = period
    step_ms = max(MINUTE_MS, -(-(until_ms - since_ms) // _MAX_POINTS // MINUTE_MS) * MINUTE_MS)
    # The rows are sorted, so each step appears once.
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
        text = f"{screen.utc(episode.from_ms)}, for {screen.duration(episode.duration_s)}"
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
    # A line across a gap would show unknown values.
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
            f"{screen.utc(at_ms)}</text>"
        )
    return "".join([*parts, "</svg>"])


_EPISODES: Final = 20
_STYLE: Final = """
:root { color-scheme: light dark; --text: #1a1d21; --dim: #5f6873; --back: #fff; --line: #d8dde3;
  --mark: #1f6feb; --bad: #d1242f; --soft: rgba(209, 36, 47, .16) }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --dim: #9198a1; --back: #0d1117;
  --line: #30363d; --mark: #58a6ff; --bad: #ff7b72; --soft: rgba(255, 123, 114, .22) } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back);
  max-width: 78rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.15rem; margin: 2.5rem 0 .25rem }
p { margin: .25rem 0 .75rem } .dim, figcaption { color: var(--dim) }
.wide { overflow-x: auto; margin: .75rem 0 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap } th { color: var(--dim); font-weight: 500 }
th:first-child, td:first-child, .text { text-align: left } .bad { color: var(--bad) }
a { color: var(--mark) } figure { margin: .75rem 0; max-width: 60rem } .chart { width: 100% }
.chart text { fill: var(--dim); font-size: 11px } .grid { stroke: var(--line) }
.line { fill: none; stroke: var(--mark); stroke-width: 1.5 } .dot { fill: var(--mark) }
.missed { fill: var(--soft) }
"""


def as_html(reports: Sequence[QueryReport], since_ms: int, until_ms: int) -> str:
    """The page. Names of queries and topics are escaped."""
    title = f"Lag from {screen.utc(since_ms)} to {screen.utc(until_ms)} UTC"
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            f'<p class="dim">{len(reports)} queries, the worst first. Percentiles are of time, and'
            f" upper bounds, combined from minutes. {screen.UNKNOWN} is unknown.</p>",
            _table(_overview(number, report) for number, report in enumerate(reports)),
            *(
                part
                for number, report in enumerate(reports)
                for part in _query(number, report, since_ms, until_ms)
            ),
            "</body></html>\n",
        ]
    )


def _overview(number: int, report: QueryReport) -> dict[str, str]:
    cells = _escaped({**screen.overview(report), **screen.outlook(report)})
    share = report.share_within_target
    if share is not None and share < 0.95:
        cells["in target"] = f'<span class="bad">{cells["in target"]}</span>'
    return {"query": f'<a href="#q{number}">{escape(report.display_name)}</a>', **cells}


def _query(number: int, report: QueryReport, since_ms: int, until_ms: int) -> Iterator[str]:
    yield f'<h2 id="q{number}">{escape(report.display_name)}</h2>'
    yield f'<p class="dim">{escape(report.query_id)}, cluster {escape(report.cluster)}</p>'
    for caption, chart in charts(report, (since_ms, until_ms)):
        yield f"<figure><figcaption>{caption}</figcaption>{chart}</figure>"
    capacity = report.capacity
    yield (
        f"<p>{screen.records(report.produced)} records were produced,"
        f" {screen.records(report.processed)} processed; the input peaked at"
        f" {screen.rate(capacity.peak_input_rate)},"
        f" the query can do {screen.rate(capacity.batch_rate)}.</p>"
    )
    yield _table(
        {"of the time": title}
        | {mark: formatted(getattr(spread, mark, None)) for mark in ("p50", "p95", "p99", "max")}
        for title, spread, formatted in (
            ("time lag", report.time_lag_s, screen.duration),
            ("lag", report.lag, screen.records),
        )
    )
    longest = sorted(report.episodes, key=lambda episode: -episode.duration_s)[:_EPISODES]
    if len(report.episodes) > len(longest):
        yield f"<p>The {len(longest)} longest of {len(report.episodes)} episodes:</p>"
    yield _table(_escaped(screen.episode_cells(episode)) for episode in longest)
    yield _table(
        _escaped(
            {
                "worst partitions": f"{partition.topic} {partition.partition}",
                "source": str(partition.source),
                "lag max": screen.records(partition.max_lag),
                "time lag max": screen.duration(partition.max_time_lag_s),
            }
        )
        for partition in report.worst
    )


def _escaped(cells: Mapping[str, str]) -> dict[str, str]:
    return {name: escape(cell) for name, cell in cells.items()}


def _table(rows: Iterable[Mapping[str, str]]) -> str:
    rows = list(rows)
    if not rows:
        return ""
    names = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "".join(
        f"<tr>{''.join(f'<td>{cell}</td>' for cell in row.values())}</tr>" for row in rows
    )
    table = f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'
