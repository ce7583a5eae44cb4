/** `/`: every query, the worst first. */

import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { now } from "../clock.ts";
import { DEFINITIONS, type Figure as FigureName } from "../definitions.ts";
import { choices, DESCENDS, FILTERS, filtersOf, matches, sections, sorted, sortOf, type Filters, type Section, type SortKey } from "../filters.ts";
import { followFleet, loaded, receivedAt, revision, rowOf, sharesName, streamState, summaries, totalsOf, type Totals } from "../fleet.ts";
import { catchUp, printable, records, span, timeLag, trend } from "../format.ts";
import type { LagSummary, RunningBatch } from "../generated/rest.ts";
import { health } from "../health.ts";
import { useKeys } from "../keys.ts";
import { useMedia } from "../media.ts";
import { CopyButton } from "../parts/copy_button.tsx";
import { ForgetButton } from "../parts/forget.tsx";
import { Header } from "../parts/header.tsx";
import { Select } from "../parts/select.tsx";
import { Sparkline } from "../parts/sparkline.tsx";
import { Age, Foreign, Headroom, QueryLink, StatusMark, Term, TopicLinks } from "../parts/text.tsx";
import { VirtualRows } from "../parts/virtual_rows.tsx";
import { place, setParams } from "../router.ts";
import { displayName, GLYPHS, isDead, mark } from "../status.ts";
import { extendTrend, trendOf } from "../trends.ts";

const ROW_PX = 56;
const CARD_PX = 132;
const SECTION_PX = 40;
/** Rows change their places no more often than this: nobody can point at what moves. */
const REORDER_MS = 2_000;

interface Column {
  key: SortKey;
  figure: FigureName;
  /** Of its track in the grid. */
  width: string;
  /** Of the window, in rem: with less it is left out. */
  least?: number;
  /** Whether it has something to show of a query; a column that has nothing of any query is left out. */
  isKnown?(event: LagSummary): boolean;
}

const COLUMNS: Column[] = [
  { key: "severity", figure: "status", width: "7.5rem" },
  { key: "query", figure: "query", width: "minmax(10rem, 1.4fr)" },
  { key: "lag", figure: "lag", width: "7rem" },
  { key: "age", figure: "time_lag", width: "5.5rem" },
  { key: "trend", figure: "trend", width: "minmax(11rem, 1fr)" },
  { key: "catch_up", figure: "catch_up", width: "6.5rem", least: 64, isKnown: (event) => catchUpOf(event) !== "" },
  {
    key: "headroom",
    figure: "headroom",
    width: "7.5rem",
    least: 64,
    isKnown: (event) => (event.min_headroom_s ?? event.min_headroom_records ?? event.loss_expected_at) != null,
  },
  {
    key: "batch",
    figure: "running_batch",
    width: "8rem",
    least: 82,
    isKnown: (event) => event.running_batch != null || event.activity === "running",
  },
  { key: "measured", figure: "last_measured", width: "7.5rem", least: 82 },
];

export function FleetPage() {
  useEffect(followFleet, []);
  useSignalEffect(() => {
    const urgent = summaries.value.filter((event) => mark(event.status) === "bad").length;
    document.title = urgent > 0 ? `(${urgent}) sparklag` : "sparklag";
  });
  return (
    <>
      <Header state={streamState.value} receivedAt={receivedAt.value} />
      <main id="main" tabIndex={-1}>
        <h1>Streaming queries</h1>
        {loaded.value ? summaries.value.length > 0 ? <Fleet /> : <NoQuery /> : <p class="empty">Reading the queries …</p>}
      </main>
    </>
  );
}

function Fleet() {
  const events = summaries.value;
  const filters = filtersOf(place.value.params);
  const shown = events.filter((event) => matches(event, filters));
  const isFiltered = shown.length !== events.length;
  return (
    <>
      <TotalFigures totals={totalsOf(shown)} of={isFiltered ? events.length : null} />
      <FilterBar dead={shown.filter(isDead)} />
      {shown.length > 0 ? (
        <QueryTable />
      ) : (
        <p class="empty">
          No query fits the filter. <button type="button" onClick={showAll}>Show all</button>
        </p>
      )}
    </>
  );
}

function TotalFigures({ totals, of }: { totals: Totals; of: number | null }) {
  const chosen = filtersOf(place.value.params).status;
  return (
    <dl class="totals" aria-label="Totals">
      <div>
        <dt>Queries and groups</dt>
        <dd>
          {records(totals.queries)}
          {of !== null && <small> of {records(of)}</small>}
        </dd>
      </div>
      <div>
        <dt><Term of="lag" /></dt>
        <dd>
          {records(totals.records)}
          {totals.unknown > 0 && <small> and {records(totals.unknown)} unknown</small>}
        </dd>
      </div>
      <div>
        <dt><Term of="time_lag" /></dt>
        <dd>{totals.oldestS === null ? "none" : span(totals.oldestS)}</dd>
      </div>
      <div class="by-status">
        <dt><Term of="status" /></dt>
        <dd>
          {totals.byStatus.map(([status, count]) => (
            <button
              type="button"
              key={status}
              class={`chip ${mark(status)}`}
              aria-pressed={chosen === status}
              onClick={() => setParams({ status: chosen === status ? null : status })}
            >
              <span aria-hidden="true">{GLYPHS[mark(status)]}</span> {records(count)} {printable(status)}
            </button>
          ))}
        </dd>
      </div>
    </dl>
  );
}

/** Without any filter. */
function showAll(): void {
  setParams(Object.fromEntries(FILTERS.map((parameter) => [parameter, null])));
}

function FilterBar({ dead }: { dead: LagSummary[] }) {
  const { params } = place.value;
  const filters = filtersOf(params);
  const { statuses, topics, clusters, applications } = choices(summaries.value);
  const search = useRef<HTMLInputElement>(null);
  useKeys({
    "/": () => search.current?.focus(),
    Escape: () => {
      showAll();
      search.current?.blur();
    },
  });
  const choice = (name: string, parameter: keyof Filters, of: string[]) => (
    <Select name={name} value={filters[parameter]} of={of} label={printable} none="all" onChange={(value) => setParams({ [parameter]: value })} />
  );
  return (
    <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
      <label>
        <span class="hidden">Filter queries</span>
        <input
          ref={search}
          type="search"
          placeholder="Filter queries  ( / )"
          value={filters.text}
          onInput={(event) => setParams({ filter: event.currentTarget.value })}
          onKeyDown={(event) => {
            if (event.key !== "Enter" && event.key !== "ArrowDown") return;
            event.preventDefault();
            document.querySelector<HTMLElement>(".queries .named > a")?.focus();
          }}
        />
      </label>
      {choice("Status", "status", statuses)}
      {choice("Topic", "topic", topics)}
      {(applications.length > 1 || filters.application !== "") && choice("Application", "application", applications)}
      {(clusters.length > 1 || filters.cluster !== "") && choice("Cluster", "cluster", clusters)}
      <Select
        name="Sort"
        class="by-sort"
        value={sortOf(params).key}
        of={COLUMNS.map(({ key }) => key)}
        label={(key) => DEFINITIONS[COLUMNS.find((column) => column.key === key)?.figure ?? "status"].name}
        onChange={(sort) => setParams({ sort })}
      />
      {applications.length > 0 && (
        <label class="choice">
          <input
            type="checkbox"
            checked={params.get("group") === "application"}
            onChange={(event) => setParams({ group: event.currentTarget.checked ? "application" : null })}
          />{" "}
          By application
        </label>
      )}
      <CopyButton name="Copy link" text={() => location.href} />
      <ForgetButton queries={dead} name={`Forget ${records(dead.length)} dead`} />
    </form>
  );
}

/** The rows and headings in their order: at once when the reader changes it, else now and then. */
function useOrder() {
  const order = useSignal<(string | Section)[]>([]);
  const ordered = useRef({ at: 0, by: "", count: -1 });
  const params = useComputed(() => place.value.params.toString());
  useSignalEffect(() => {
    revision.value;
    now.value;
    const search = new URLSearchParams(params.value);
    const filters = filtersOf(search);
    const last = ordered.current;
    const isDue = Date.now() - last.at >= REORDER_MS;
    const count = summaries.value.length;
    if (!isDue && last.by === params.value && last.count === count) return;
    ordered.current = { at: Date.now(), by: params.value, count };
    const events = sorted(summaries.value.filter((event) => matches(event, filters)), sortOf(search));
    const items = sections(events, search.get("group") === "application");
    const before = order.peek();
    if (items.length !== before.length || items.some((item, index) => keyOf(item) !== keyOf(before[index]))) order.value = items;
  });
  return order;
}

function keyOf(item: string | Section | undefined): string {
  return typeof item === "object" ? `${item.heading}\n${item.count}` : (item ?? "");
}

/** The columns that the window has room for, and that have something to show now or had it before. */
function useColumns(): Column[] {
  const widths: Record<number, boolean> = { 64: useMedia("(min-width: 64rem)"), 82: useMedia("(min-width: 82rem)") };
  const known = useRef(new Set<SortKey>());
  const events = summaries.value;
  for (const { key, isKnown } of COLUMNS) {
    if (isKnown === undefined || (!known.current.has(key) && events.some(isKnown))) known.current.add(key);
  }
  return COLUMNS.filter(({ key, least }) => known.current.has(key) && (least === undefined || widths[least]));
}

function QueryTable() {
  const items = useOrder().value;
  const columns = useColumns();
  const isNarrow = useMedia("(max-width: 48rem)");
  const layout = useMemo(() => items.flatMap((item, index) => (typeof item === "object" ? [index] : [])).join(), [items]) + isNarrow;
  const sort = sortOf(place.value.params);
  const table = useRef<HTMLDivElement>(null);
  const move = (step: 1 | -1) => () => moveFocus(table.current, step);
  useKeys({ j: move(1), ArrowDown: move(1), k: move(-1), ArrowUp: move(-1) });
  return (
    <div
      ref={table}
      role="table"
      aria-label="Queries"
      aria-rowcount={items.length + 1}
      class="table queries"
      style={{ "--columns": columns.map(({ width }) => width).join(" ") }}
    >
      <div role="rowgroup">
        <div role="row" class="head" aria-rowindex={1}>
          {columns.map(({ key, figure }) => {
            const { name, means } = DEFINITIONS[figure];
            const isSorted = sort.key === key;
            const descending = isSorted ? !sort.descending : DESCENDS[key];
            return (
              <div key={key} role="columnheader" class={key} aria-sort={isSorted ? (sort.descending ? "descending" : "ascending") : "none"}>
                <button type="button" data-definition={means} aria-description={means} onClick={() => setParams({ sort: `${key}:${descending ? "desc" : "asc"}` })}>
                  {name}
                  <span aria-hidden="true">{isSorted ? (sort.descending ? " ↓" : " ↑") : ""}</span>
                </button>
              </div>
            );
          })}
        </div>
      </div>
      <VirtualRows
        count={items.length}
        layout={layout}
        heightOf={(index) => (typeof items[index] === "object" ? SECTION_PX : isNarrow ? CARD_PX : ROW_PX)}
        keyOf={(index) => keyOf(items[index])}
        render={(index) => {
          const item = items[index];
          if (typeof item === "object") return <SectionRow section={item} index={index} />;
          return <Row key={item} id={item ?? ""} index={index} columns={columns} />;
        }}
      />
    </div>
  );
}

function SectionRow({ section: { heading, count }, index }: { section: Section; index: number }) {
  return (
    <div role="row" class="section" aria-rowindex={index + 2}>
      <div role="rowheader">
        <Foreign text={heading} /> <small>{records(count)}</small>
      </div>
    </div>
  );
}

/** What a row shows in each column. */
const CELLS: Record<SortKey, (event: LagSummary) => ComponentChildren> = {
  severity: (event) => (
    <>
      <StatusMark status={event.status} />
      {event.status_since != null && mark(event.status) !== "ok" && (
        <small>for {span(Math.max(0, (now.value - event.status_since) / 1000))}</small>
      )}
    </>
  ),
  query: (event) => (
    <>
      <QueryLink event={event} isShared={sharesName(event)} />
      <small>{event.reason ? <Foreign text={event.reason} /> : <TopicLinks topics={event.topics} />}</small>
    </>
  ),
  lag: (event) => (
    <>
      {records(event.total_lag)}
      {(event.unknown_partitions ?? 0) > 0 && <small>{records(event.unknown_partitions)} unknown</small>}
    </>
  ),
  age: (event) => timeLag(event.total_lag, event.max_time_lag_s),
  trend: (event) => (
    <>
      <RowTrend id={event.query_id} name={displayName(event)} />
      <small>{trend(event.lag_trend)}</small>
    </>
  ),
  catch_up: (event) => <span title={event.catch_up_reason ? printable(event.catch_up_reason) : undefined}>{catchUpOf(event)}</span>,
  headroom: (event) => <Headroom lossAt={event.loss_expected_at} seconds={event.min_headroom_s} count={event.min_headroom_records} />,
  batch: (event) => (event.running_batch ? <Running batch={event.running_batch} /> : event.activity === "running" ? "running" : ""),
  measured: (event) => <Age at={event.measured_at} />,
};

function catchUpOf(event: LagSummary): string {
  return event.total_lag === 0 ? "" : catchUp(event.catch_up_s, event.catch_up_reason);
}

function Row({ id, index, columns }: { id: string; index: number; columns: Column[] }) {
  const row = rowOf(id);
  useSignalEffect(() => {
    if (row) extendTrend(row.value);
  });
  if (!row) return null;
  return (
    <div role="row" class={`row ${mark(row.value.status)}`} aria-rowindex={index + 2}>
      {columns.map(({ key }) => (
        <div key={key} role="cell" class={key}>
          {CELLS[key](row.value)}
        </div>
      ))}
    </div>
  );
}

function RowTrend({ id, name }: { id: string; name: string }) {
  const values = trendOf(id).value;
  return values ? <Sparkline values={values} label={`Lag of ${printable(name)}`} /> : <span class="sparkline" />;
}

function Running({ batch }: { batch: RunningBatch }) {
  const total = batch.tasks_total ?? 0;
  return (
    <>
      {span(Math.max(0, (now.value - batch.started_at) / 1000))}
      {total > 0 && (
        <>
          <progress max={total} value={batch.tasks_done ?? 0} aria-label="Tasks done" />
          <small>
            {records(batch.tasks_done ?? 0)} of {records(total)} tasks
          </small>
        </>
      )}
    </>
  );
}

/** From query to query. */
function moveFocus(table: HTMLElement | null, step: 1 | -1): boolean {
  const links = [...(table?.querySelectorAll<HTMLElement>('[role="row"] .named > a') ?? [])];
  links.sort((a, b) => rowIndexOf(a) - rowIndexOf(b)); // a row that came into view last is last in the document
  const focused = rowIndexOf(document.activeElement);
  const after = links.filter((link) => (step > 0 ? rowIndexOf(link) > focused : rowIndexOf(link) < focused));
  const next = focused === 0 ? links[0] : step > 0 ? after[0] : after.at(-1);
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
  return next !== undefined;
}

function rowIndexOf(element: Element | null): number {
  return Number(element?.closest('[role="row"]')?.getAttribute("aria-rowindex") ?? 0);
}

/** What to do where there is nothing to see. */
function NoQuery() {
  const failing = Object.keys(health.value?.failing ?? {}).length > 0;
  if (failing) return <p class="empty">No query can be shown: see the error above.</p>;
  const { protocol, host } = location;
  return (
    <section class="empty" aria-label="First steps">
      <h2>No query has been observed yet</h2>
      <p>Add two lines to a PySpark driver, before or after its queries start:</p>
      <pre>
        <code>{"from sparklag_listener import observe      # pip install sparklag (in a clone: pip install .)\nhandle = observe(spark)"}</code>
      </pre>
      <p>Or name the folder of a checkpoint to this service, and leave the driver as it is:</p>
      <pre>
        <code>{'# sparklag.toml\n[checkpoints]\nlocations = ["s3://bucket/checkpoints/*"]'}</code>
      </pre>
      <p>
        A query appears here with its first batch, without a reload. If a driver runs already: it must publish to the Kafka that
        this service ({protocol}//{host}) reads; <code>sparklag check</code> says what is missing.
      </p>
    </section>
  );
}
