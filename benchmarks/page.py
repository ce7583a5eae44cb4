"""The page in a real browser: how soon it can be used, how soon it shows an event, what it costs.

Lag events are written to `consumer-lag` as a service would write them, 1,000 queries each second; a
service in a process of its own reads them, and Chromium has the page open. Times are the page's
own, taken when what is measured has been drawn.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from statistics import median, quantiles
from typing import Any, Final

import msgspec
from aiokafka import AIOKafkaProducer
from playwright.async_api import Browser, CDPSession, Page

from benchmarks.comparison import Row, ms, say
from benchmarks.live_stream import lag_event
from benchmarks.service_process import ServiceProcess, service_process, wait_for
from sparklag_kafka.access import quiet_client_logs
from sparklag_schemas import LagEvent, PartitionLag, encode
from sparklag_schemas.messages.topics import key_of
from tests.local_kafka import LocalKafka
from tests.waiting import eventually
from tests.web.chromium import running_chromium

USABLE_BUDGET_MS: Final = 1_000.0
VISIBLE_BUDGET_MS: Final = 300.0
BUSY_BUDGET: Final = 0.3
GROWTH_BUDGET_MB: Final = 1.0
INTERACTION_BUDGET_MS: Final = 100.0
TRANSFER_BUDGET_KB: Final = 90.0
MANY_BUDGET_MS: Final = 3_000.0

_QUERIES: Final = 1_000
_MANY: Final = 10_000
_PARTITIONS: Final = 2_000
_WIDE: Final = _QUERIES
"""The number of the query that has so many partitions."""
_LOADS: Final = 10
_MARKS: Final = 100
_MARK_EACH_S: Final = 0.25
_WARM_UP_S: Final = 30.0
_WATCHED_S: Final = float(os.environ.get("SPARKLAG_BENCH_PAGE_S", "600"))
_CLICKS: Final = 20
_READY: Final = """
new MutationObserver((_, observer) => {
    const table = document.querySelector('[role=table][aria-rowcount="%d"]');
    if (!table?.querySelector("[role=cell]")) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => (window.usableMs = performance.now())));
}).observe(document, { subtree: true, childList: true, attributes: true });
"""
_WATCH_MARKS: Final = """
(name) => {
    window.shownMs = {};
    const link = [...document.querySelectorAll(".named > a")].find((a) => a.innerText === name);
    const cell = link.closest("[role=row]").querySelector("[role=cell].lag");
    new MutationObserver(() => {
        const text = cell.innerText;
        requestAnimationFrame(() => setTimeout(() => (window.shownMs[text] ??= Date.now())));
    }).observe(cell, { subtree: true, childList: true, characterData: true });
}
"""
_WATCH_INTERACTIONS: Final = """
() => {
    window.interactionsMs = [];
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries())
            if (entry.interactionId) window.interactionsMs.push(entry.duration);
    }).observe({ type: "event", durationThreshold: 16 });
}
"""
_TRANSFERRED: Final = """
() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
    .reduce((sum, entry) => sum + entry.transferSize, 0)
"""


def run() -> list[Row]:
    """Rows for loading, latency, cost and interaction."""
    quiet_client_logs()
    with LocalKafka() as kafka:
        limits = {"SPARKLAG_LIMITS__QUERIES": str(_MANY)}
        with service_process(
            kafka.bootstrap_servers, publish_interval_s=1, environment=limits
        ) as service:
            wait_for(service.health)
            return asyncio.run(_measure(kafka.bootstrap_servers, service))


async def _measure(bootstrap_servers: str, service: ServiceProcess) -> list[Row]:
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers, compression_type="lz4"
    ) as producer:
        async with running_chromium() as browser:
            await _update(producer, 0)
            say(f"page: first load, {_QUERIES:,} queries")
            usable_ms, transferred_kb = await _loading(browser, service)
            async with _updated_fleet(producer):
                say("page: first load while every query changes each second")
                usable_busy_ms, _ = await _loading(browser, service)
                rows = _loading_rows(usable_ms, usable_busy_ms, transferred_kb)
                say("page: event → visible")
                rows += await _latency(browser, service, producer)
                say(f"page: {_WATCHED_S:g} s with every query each second")
                rows += await _cost(browser, service)
                say(f"page: interaction, {_PARTITIONS:,} partitions")
                rows += await _interaction(browser, service)
            say(f"page: first load, {_MANY:,} queries")
            for number in range(_QUERIES + 1, _MANY):
                await _send(producer, _with_lag(lag_event(number, None), number))
            rows.append(_many_row((await _loading(browser, service, _MANY))[0]))
    return rows


@asynccontextmanager
async def _updated_fleet(producer: AIOKafkaProducer) -> AsyncIterator[None]:
    """An event of every query each second, that with many partitions among them."""
    task = asyncio.create_task(_update_forever(producer))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _update_forever(producer: AIOKafkaProducer) -> None:
    began_s = time.monotonic()
    for step in count(1):
        await _update(producer, step, began_s + step - 1)


async def _update(producer: AIOKafkaProducer, step: int, began_s: float = -math.inf) -> None:
    """Every query once, evenly over the second that began then, by the monotonic clock."""
    # The first one is for the marks.
    for number in range(1, _QUERIES):
        await asyncio.sleep(max(0.0, began_s + number / _QUERIES - time.monotonic()))
        await _send(producer, _with_lag(lag_event(number, None), step * number % 9_973))
    await _send(producer, _wide_event(step))


async def _send(producer: AIOKafkaProducer, event: LagEvent) -> None:
    await producer.send("consumer-lag", encode(event), key=key_of(event.query_id))


def _with_lag(event: LagEvent, lag: int) -> LagEvent:
    return msgspec.structs.replace(event, total_lag=lag)


def _wide_event(step: int) -> LagEvent:
    event = lag_event(_WIDE, None)
    partitions = [
        PartitionLag(
            partition=number,
            processed_offset=step,
            latest_offset=step + (step * number) % 1_000,
            earliest_offset=0,
            lag=(step * number) % 1_000,
        )
        for number in range(_PARTITIONS)
    ]
    lag = sum(partition.lag or 0 for partition in partitions)
    (topic,) = event.topics
    return msgspec.structs.replace(
        event,
        total_lag=lag,
        topics=[msgspec.structs.replace(topic, total_lag=lag, partitions=partitions)],
    )


@asynccontextmanager
async def _opened(browser: Browser, url: str, script: str | None = None) -> AsyncIterator[Page]:
    context = await browser.new_context(viewport={"width": 1600, "height": 1000})
    try:
        if script is not None:
            await context.add_init_script(script)
        page = await context.new_page()
        await page.goto(url)
        yield page
    finally:
        await context.close()


async def _loading(
    browser: Browser, service: ServiceProcess, queries: int = _QUERIES
) -> tuple[list[float], float]:
    """Milliseconds until every query is there, of each load, and the kilobytes of one."""
    async with _opened(browser, service.url, _READY % (queries + 1)) as page:
        # All of them are there.
        await _usable_ms(page)
    usable_ms = []
    transferred_kb = 0.0
    for _ in range(_LOADS):
        async with _opened(browser, service.url, _READY % (queries + 1)) as page:
            usable_ms.append(await _usable_ms(page))
            transferred_kb = float(await page.evaluate(_TRANSFERRED)) / 1024
    return usable_ms, transferred_kb


def _loading_rows(
    usable_ms: Sequence[float], usable_busy_ms: Sequence[float], transferred_kb: float
) -> list[Row]:
    return [
        Row(
            f"page, {_QUERIES:,} queries: first load → usable",
            ms(usable_ms),
            f"{ms(usable_busy_ms)} while every query changes each second",
            reach=f"≤ {USABLE_BUDGET_MS:g} ms",
            reached=median(usable_ms) <= USABLE_BUDGET_MS,
        ),
        Row(
            "page: first load, compressed, without the stream",
            f"{transferred_kb:.0f} KB",
            "",
            reach=f"≤ {TRANSFER_BUDGET_KB:g} KB",
            reached=transferred_kb <= TRANSFER_BUDGET_KB,
        ),
    ]


def _many_row(usable_ms: Sequence[float]) -> Row:
    return Row(
        f"page, {_MANY:,} queries: first load → usable",
        ms(usable_ms),
        "",
        reach=f"≤ {MANY_BUDGET_MS:g} ms",
        reached=median(usable_ms) <= MANY_BUDGET_MS,
    )


async def _usable_ms(page: Page) -> float:
    # Playwright's own waiting is refused by the page's Content-Security-Policy.
    await eventually(lambda: page.evaluate("'usableMs' in window"), "all queries are shown")
    return float(await page.evaluate("window.usableMs"))


async def _latency(
    browser: Browser, service: ServiceProcess, producer: AIOKafkaProducer
) -> list[Row]:
    sent_ms: dict[str, float] = {}
    await _send(producer, _with_lag(lag_event(0, None), 1))
    async with _opened(browser, f"{service.url}/?sort=query:asc") as page:
        await page.get_by_role("link", name="query-0", exact=True).wait_for()
        await page.evaluate(_WATCH_MARKS, "query-0")
        for number in range(_MARKS):
            # Not in step with the page's own clock.
            await asyncio.sleep(_MARK_EACH_S + number % 7 * 0.013)
            mark = 1_000_000 + number
            sent_ms[f"{mark:,}"] = time.time() * 1000
            await _send(producer, _with_lag(lag_event(0, None), mark))
        last = f"'{1_000_000 + _MARKS - 1:,}' in window.shownMs"
        await eventually(lambda: page.evaluate(last), "the last mark is shown")
        shown_ms: dict[str, float] = await page.evaluate("window.shownMs")
    # One that the page has skipped was shown by a newer one.
    taken_ms = [
        min(shown_ms[newer] for newer in sent_ms if newer >= mark and newer in shown_ms) - at_ms
        for mark, at_ms in sent_ms.items()
    ]
    worst_ms = quantiles(taken_ms, n=20)[-1]
    return [
        Row(
            "page: event produced → visible, median",
            ms(taken_ms),
            f"{len(shown_ms)} of {_MARKS} were drawn, the others skipped for newer ones",
        ),
        Row(
            "page: event produced → visible, 95 %",
            f"{worst_ms:.0f} ms",
            "",
            reach=f"≤ {VISIBLE_BUDGET_MS:g} ms",
            reached=worst_ms <= VISIBLE_BUDGET_MS,
        ),
    ]


async def _cost(browser: Browser, service: ServiceProcess) -> list[Row]:
    async with _opened(browser, service.url) as page:
        session = await page.context.new_cdp_session(page)
        await session.send("Performance.enable")
        await asyncio.sleep(_WARM_UP_S)
        before_mb, busy_s, began_s = await _state(session)
        cpu_s = service.cpu_s()
        await asyncio.sleep(_WATCHED_S)
        after_mb, busy_after_s, ended_s = await _state(session)
        service_share = (service.cpu_s() - cpu_s) / (ended_s - began_s)
    share = (busy_after_s - busy_s) / (ended_s - began_s)
    growth_mb = after_mb - before_mb
    return [
        Row(
            f"page, {_QUERIES:,} events a second for {_WATCHED_S:g} s: main thread",
            f"{share:.0%}",
            f"{service_share:.0%} of a core, the service",
            reach=f"≤ {BUSY_BUDGET:.0%}",
            reached=share <= BUSY_BUDGET,
        ),
        Row(
            f"page, {_QUERIES:,} events a second for {_WATCHED_S:g} s: JavaScript's heap",
            f"{growth_mb:+.1f} MB",
            f"{before_mb:.1f} MB, after {_WARM_UP_S:g} s",
            reach=f"≤ +{GROWTH_BUDGET_MB:g} MB",
            reached=growth_mb <= GROWTH_BUDGET_MB,
        ),
    ]


async def _state(session: CDPSession) -> tuple[float, float, float]:
    """Megabytes of the heap without garbage, seconds that the main thread was busy, and when."""
    metrics = await _metrics(session)
    await session.send("HeapProfiler.collectGarbage")
    collected = await _metrics(session)
    return collected["JSHeapUsedSize"] / 2**20, metrics["TaskDuration"], metrics["Timestamp"]


async def _metrics(session: CDPSession) -> dict[str, float]:
    answer: Any = await session.send("Performance.getMetrics")
    return {metric["name"]: float(metric["value"]) for metric in answer["metrics"]}


async def _interaction(browser: Browser, service: ServiceProcess) -> list[Row]:
    async with _opened(browser, f"{service.url}/q/query-{_WIDE}") as page:
        await page.get_by_role("table", name="Partitions of ").wait_for()
        await page.evaluate(_WATCH_INTERACTIONS)
        order = page.get_by_role("checkbox", name="Worst first")
        for number in range(_CLICKS):
            await order.click()
            await page.get_by_role("button", name=("6h", "1h")[number % 2]).click()
            await asyncio.sleep(0.3)
        taken_ms: Sequence[float] = await page.evaluate("window.interactionsMs")
    # Those that are not told took less than the browser's threshold.
    worst_ms = max(taken_ms, default=16.0)
    return [
        Row(
            f"page of a query, {_PARTITIONS:,} partitions: slowest of {2 * _CLICKS} interactions",
            f"{worst_ms:.0f} ms",
            "",
            reach=f"≤ {INTERACTION_BUDGET_MS:g} ms",
            reached=worst_ms <= INTERACTION_BUDGET_MS,
        )
    ]
