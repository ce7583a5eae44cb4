"""The report as one HTML page that stands alone: no script, and nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Final

from sparklag_pipeline.report import formatting
from sparklag_pipeline.report.charts import charts
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
    """The page. Names of queries and topics are escaped."""
    title = f"Lag from {formatting.utc(since_ms)} to {formatting.utc(until_ms)} UTC"
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            f'<p class="dim">{len(reports)} queries, the worst first. Percentiles are of time, and'
            f" upper bounds, combined from minutes. {formatting.UNKNOWN} is unknown.</p>",
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
    cells = _escaped({**formatting.overview(report), **formatting.outlook(report)})
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
        f"<p>{formatting.records(report.produced)} records were produced,"
        f" {formatting.records(report.processed)} processed; the input peaked at"
        f" {formatting.rate(capacity.peak_input_rate)},"
        f" the query can do {formatting.rate(capacity.batch_rate)}.</p>"
    )
    yield _table(
        {"of the time": title}
        | {mark: formatted(getattr(spread, mark, None)) for mark in ("p50", "p95", "p99", "max")}
        for title, spread, formatted in (
            ("age", report.time_lag_s, formatting.duration),
            ("lag", report.lag, formatting.records),
        )
    )
    longest = sorted(report.episodes, key=lambda episode: -episode.duration_s)[:_EPISODES]
    if len(report.episodes) > len(longest):
        yield f"<p>The {len(longest)} longest of {len(report.episodes)} episodes:</p>"
    yield _table(_escaped(formatting.episode_cells(episode)) for episode in longest)
    yield _table(
        _escaped(
            {
                "worst partitions": f"{partition.topic} {partition.partition}",
                "source": str(partition.source),
                "lag max": formatting.records(partition.max_lag),
                "age max": formatting.duration(partition.max_time_lag_s),
            }
        )
        for partition in report.worst
    )


def _escaped(cells: Mapping[str, str]) -> dict[str, str]:
    return {name: escape(cell) for name, cell in cells.items()}


def _table(rows: Iterable[Mapping[str, str]]) -> str:
    """Of rows of HTML, by their columns' titles; nothing where there is no row."""
    rows = list(rows)
    if not rows:
        return ""
    names = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "".join(
        f"<tr>{''.join(f'<td>{cell}</td>' for cell in row.values())}</tr>" for row in rows
    )
    table = f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'
