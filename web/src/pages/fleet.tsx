/** `/`: every query, the worst first. */

import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { now } from "../clock.ts";
import { choices, DESCENDS, filtersOf, matches, sorted, sortOf, type SortKey } from "../filters.ts";
import { followFleet, loaded, nameCounts, receivedAt, revision, rowOf, streamState, summaries, totalsOf, type Totals } from "../fleet.ts";
import { catchUp, oldest, printable, records, span, trend } from "../format.ts";
import type { LagSummary, RunningBatch } from "../generated/rest.ts";
import { health } from "../health.ts";
import { useMedia } from "../media.ts";
import { Header } from "../parts/header.tsx";
import { Sparkline } from "../parts/sparkline.tsx";
import { Age, Foreign, StatusMark } from "../parts/text.tsx";
import { VirtualRows } from "../parts/virtual_rows.tsx";
import { place, queryHref, setParams, topicHref } from "../router.ts";
import { displayName, GLYPHS, mark } from "../status.ts";
import { extendTrend, trendOf } from "../trends.ts";

const ROW_PX = 56;
const CARD_PX = 132;
/** Rows change their places no more often than this: nobody can point at what moves. */
const REORDER_MS = 2_000;

interface Column {
  key: SortKey;
  name: string;
  title: string;
}

const COLUMNS: Column[] = [
  { key: "severity", name: "Status", title: "The worst first" },
  { key: "query", name: "Query", title: "Name, or id where it has none" },
  { key: "lag", name: "Lag", title: "Records that are not processed" },
  { key: "age", name: "Time lag", title: "Age of the first record that is not processed" },
  { key: "trend", name: "Trend", title: "Lag over the last 30 minutes, and its change a second" },
  { key: "catch_up", name: "Catch-up", title: "Until the lag is gone, at these rates" },
  { key: "headroom", name: "Headroom", title: "Until retention deletes records that are not processed" },
  { key: "batch", name: "Running batch", title: "The batch that runs, and how much of it is done" },
  { key: "measured", name: "Age", title: "When the latest offsets were read" },
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
      <FilterBar />
      {shown.length > 0 ? (
        <QueryTable />
      ) : (
        <p class="empty">
          No query fits the filter. <button type="button" onClick={() => setParams({ filter: null, status: null, topic: null, cluster: null })}>Show all</button>
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
        <dt>Queries</dt>
        <dd>
          {records(totals.queries)}
          {of !== null && <small> of {records(of)}</small>}
        </dd>
      </div>
      <div>
        <dt>Records behind</dt>
        <dd>
          {records(totals.records)}
          {totals.unknown > 0 && <small> and {records(totals.unknown)} unknown</small>}
        </dd>
      </div>
      <div>
        <dt>Oldest record</dt>
        <dd>{totals.oldestS === null ? "none" : span(totals.oldestS)}</dd>
      </div>
      <div class="by-status">
        <dt>By status</dt>
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

function FilterBar() {
  const filters = filtersOf(place.value.params);
  const { statuses, topics, clusters } = choices(summaries.value);
  const search = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const focus = (event: KeyboardEvent) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || isEditable(event.target)) return;
      event.preventDefault();
      search.current?.focus();
    };
    addEventListener("keydown", focus);
    return () => removeEventListener("keydown", focus);
  }, []);
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
        />
      </label>
      <Choice name="Status" parameter="status" value={filters.status} of={statuses} />
      <Choice name="Topic" parameter="topic" value={filters.topic} of={topics} />
      {(clusters.length > 1 || filters.cluster !== "") && <Choice name="Cluster" parameter="cluster" value={filters.cluster} of={clusters} />}
      <Choice
        name="Sort"
        parameter="sort"
        value={sortOf(place.value.params).key}
        of={COLUMNS.map((column) => column.key)}
        label={(key) => COLUMNS.find((column) => column.key === key)?.name ?? key}
        needed
      />
    </form>
  );
}

interface ChoiceProps {
  name: string;
  parameter: string;
  value: string;
  of: string[];
  label?: (value: string) => string;
  needed?: boolean;
}

function Choice({ name, parameter, value, of, label = printable, needed = false }: ChoiceProps) {
  const options = value === "" || of.includes(value) ? of : [value, ...of];
  return (
    <label class={`choice by-${parameter}`}>
      {name}{" "}
      <select value={value} onChange={(event) => setParams({ [parameter]: event.currentTarget.value })}>
        {!needed && <option value="">all</option>}
        {options.map((each) => (
          <option key={each} value={each}>
            {label(each)}
          </option>
        ))}
      </select>
    </label>
  );
}

function isEditable(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches("input, select, textarea");
}

/** The ids of the rows in their order: at once when the reader changes it, else now and then. */
function useOrder() {
  const order = useSignal<string[]>([]);
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
    const ids = sorted(summaries.value.filter((event) => matches(event, filters)), sortOf(search)).map((event) => event.query_id);
    const before = order.peek();
    if (ids.length !== before.length || ids.some((id, index) => id !== before[index])) order.value = ids;
  });
  return order;
}

function QueryTable() {
  const order = useOrder();
  const isNarrow = useMedia("(max-width: 48rem)");
  const sort = sortOf(place.value.params);
  const table = useRef<HTMLDivElement>(null);
  const ids = order.value;
  return (
    <div ref={table} role="table" aria-label="Queries" aria-rowcount={ids.length + 1} class="table queries" onKeyDown={(event) => moveFocus(event, table.current)}>
      <div role="rowgroup">
        <div role="row" class="head" aria-rowindex={1}>
          {COLUMNS.map(({ key, name, title }) => {
            const isSorted = sort.key === key;
            const descending = isSorted ? !sort.descending : DESCENDS[key];
            return (
              <div key={key} role="columnheader" class={key} aria-sort={isSorted ? (sort.descending ? "descending" : "ascending") : "none"}>
                <button type="button" title={title} onClick={() => setParams({ sort: `${key}:${descending ? "desc" : "asc"}` })}>
                  {name}
                  <span aria-hidden="true">{isSorted ? (sort.descending ? " ↓" : " ↑") : ""}</span>
                </button>
              </div>
            );
          })}
        </div>
      </div>
      <VirtualRows
        count={ids.length}
        rowHeight={isNarrow ? CARD_PX : ROW_PX}
        keyOf={(index) => ids[index] ?? String(index)}
        render={(index) => <Row key={ids[index]} id={ids[index] ?? ""} index={index} />}
      />
    </div>
  );
}

function Row({ id, index }: { id: string; index: number }) {
  const row = rowOf(id);
  useSignalEffect(() => {
    if (row) extendTrend(row.value);
  });
  const sharesName = useComputed(() => (nameCounts.value.get(row?.value.query ?? "") ?? 0) > 1);
  if (!row) return null;
  const event = row.value;
  const its = mark(event.status);
  return (
    <div role="row" class={`row ${its}`} aria-rowindex={index + 2}>
      <div role="cell" class="severity">
        <StatusMark status={event.status} />
        {event.status_since != null && its !== "ok" && (
          <small>for {span(Math.max(0, (now.value - event.status_since) / 1000))}</small>
        )}
      </div>
      <div role="cell" class="query">
        <a href={queryHref(event.query_id)}>
          <Foreign text={displayName(event)} />
        </a>
        <small>
          {sharesName.value && <Foreign text={`${event.query_id.slice(0, 8)} ${event.application ?? ""}: `} />}
          {event.reason ? <Foreign text={event.reason} /> : <Topics event={event} />}
        </small>
      </div>
      <div role="cell" class="lag number">
        {records(event.total_lag)}
        {(event.unknown_partitions ?? 0) > 0 && <small>{records(event.unknown_partitions)} unknown</small>}
      </div>
      <div role="cell" class="age number">{oldest(event.total_lag, event.max_time_lag_s)}</div>
      <div role="cell" class="trend">
        <RowTrend id={id} name={displayName(event)} />
        <small>{trend(event.lag_trend)}</small>
      </div>
      <div role="cell" class="catch_up number" title={event.catch_up_reason ? printable(event.catch_up_reason) : undefined}>
        {event.total_lag === 0 ? "" : catchUp(event.catch_up_s, event.catch_up_reason)}
      </div>
      <div role="cell" class="headroom number">
        <Headroom event={event} />
      </div>
      <div role="cell" class="batch">{event.running_batch ? <Running batch={event.running_batch} /> : event.activity === "running" ? "running" : ""}</div>
      <div role="cell" class="measured number">
        <Age at={event.measured_at} />
      </div>
    </div>
  );
}

function Topics({ event }: { event: LagSummary }) {
  return (
    <>
      {event.topics.slice(0, 3).map((topic, index) => (
        <span key={topic}>
          {index > 0 && ", "}
          <a href={topicHref(topic)}>{printable(topic)}</a>
        </span>
      ))}
      {event.topics.length > 3 && ` and ${event.topics.length - 3} more topics`}
    </>
  );
}

function RowTrend({ id, name }: { id: string; name: string }) {
  const values = trendOf(id).value;
  return values ? <Sparkline values={values} label={`Lag of ${printable(name)}`} /> : <span class="sparkline" />;
}

function Headroom({ event }: { event: LagSummary }) {
  if (event.loss_expected_at != null) {
    return <strong class="bad">loss in {span(Math.max(0, (event.loss_expected_at - now.value) / 1000))}</strong>;
  }
  if (event.min_headroom_s != null) return <>{span(event.min_headroom_s)}</>;
  return event.min_headroom_records != null ? <small>{records(event.min_headroom_records)} records</small> : null;
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

/** Arrow keys, and j and k as in other tools, go from query to query. */
function moveFocus(event: KeyboardEvent, table: HTMLElement | null): void {
  const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
  if (!step || !table || event.ctrlKey || event.metaKey || event.altKey || isEditable(event.target)) return;
  const links = [...table.querySelectorAll<HTMLElement>('[role="row"] .query > a')];
  const rows = links.map((link) => Number(link.closest('[role="row"]')?.getAttribute("aria-rowindex")));
  const focused = (document.activeElement as HTMLElement | null)?.closest('[role="row"]')?.getAttribute("aria-rowindex");
  const next = links[focused ? rows.indexOf(Number(focused) + step) : 0];
  if (!next) return;
  event.preventDefault();
  next.focus();
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
