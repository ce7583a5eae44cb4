"""The report as one HTML page that stands alone: no script, and nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from sparklag_pipeline.report import formatting
from sparklag_pipeline.report.charts import age_chart, target_chart
from sparklag_pipeline.report.query_report import QueryReport

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
    """The page. What it says of queries and topics is escaped."""
    title = f"Lag from {formatting.moment(since_ms)} to {formatting.moment(until_ms)} UTC"
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            f'<p class="dim">{len(reports)} queries, the worst first. Percentiles are of time, and'
            f" upper bounds: put together from minutes. {formatting.UNKNOWN} is not known.</p>",
            *_overview(reports),
            *(
                part
                for number, report in enumerate(reports)
                for part in _query(number, report, since_ms, until_ms)
            ),
            "</body></html>\n",
        ]
    )


def _overview(reports: Sequence[QueryReport]) -> Iterator[str]:
    rows = (
        [
            f'<a href="#q{number}">{escape(report.display_name)}</a>',
            _share(report),
            formatting.duration(report.known_s),
            str(len(report.episodes)),
            formatting.duration(report.longest.duration_s if report.longest else None),
            formatting.duration(report.time_lag_s.p95 if report.time_lag_s else None),
            formatting.records(report.lag.p95 if report.lag else None),
            formatting.records(report.processed),
            escape(formatting.trend(report)),
            escape(formatting.capacity(report)),
        ]
        for number, report in enumerate(reports)
    )
    head = ["query", "within target", "known", "missed", "longest", "age p95", "lag p95"]
    yield _table([*head, "processed", "lag trend", "capacity"], rows)


def _spreads(report: QueryReport) -> str:
    marks = ("p50", "p95", "p99", "max")
    ages, lags = report.time_lag_s, report.lag
    rows = [
        ["age", *(formatting.duration(getattr(ages, mark, None)) for mark in marks)],
        ["lag", *(formatting.records(getattr(lags, mark, None)) for mark in marks)],
    ]
    return _table(["of the time", *marks], iter(rows))


def _rates(report: QueryReport) -> str:
    found = report.capacity
    told = (
        f"{formatting.records(report.produced)} records came,"
        f" {formatting.records(report.processed)} were processed; at its peak"
        f" {formatting.rate(found.peak_input_rate)} came,"
        f" and it can do {formatting.rate(found.batch_rate)}."
    )
    return f"<p>{escape(told)}</p>"


def _share(report: QueryReport) -> str:
    value = report.share_within_target
    shown = formatting.share(value)
    return f'<span class="bad">{shown}</span>' if value is not None and value < 0.95 else shown


def _query(number: int, report: QueryReport, since_ms: int, until_ms: int) -> Iterator[str]:
    yield f'<h2 id="q{number}">{escape(report.display_name)}</h2>'
    yield f'<p class="dim">{escape(report.query_id)}, cluster {escape(report.cluster)}</p>'
    for caption, chart in (
        ("Time lag, p95", age_chart(report, since_ms, until_ms)),
        ("Share of time within target", target_chart(report, since_ms, until_ms)),
    ):
        if chart:
            yield f"<figure><figcaption>{caption}</figcaption>{chart}</figure>"
    yield _rates(report)
    yield _spreads(report)
    if report.episodes:
        yield from _episodes(report)
    if report.worst:
        yield _table(
            ["worst partitions", "source", "lag", "age"],
            (
                [
                    escape(f"{one.topic} {one.partition}"),
                    str(one.source),
                    formatting.records(one.max_lag),
                    formatting.duration(one.max_time_lag_s),
                ]
                for one in report.worst
            ),
        )


def _episodes(report: QueryReport) -> Iterator[str]:
    longest = sorted(report.episodes, key=lambda one: -one.duration_s)[:_EPISODES]
    if len(report.episodes) > len(longest):
        yield f"<p>The {len(longest)} longest of {len(report.episodes)} episodes:</p>"
    yield _table(
        ["missed from", "to", "for", "worst lag", "worst age"],
        (
            [
                formatting.moment(one.from_ms),
                formatting.moment(one.to_ms),
                formatting.duration(one.duration_s),
                formatting.records(one.max_lag),
                formatting.duration(one.max_time_lag_s),
            ]
            for one in longest
        ),
    )


def _table(head: Sequence[str], rows: Iterator[list[str]]) -> str:
    """`rows` are HTML."""
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    table = f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'
