/** Every query's newest summary, from the live stream; drawn a few times a second. */

import { batch, computed, signal, type Signal } from "@preact/signals";
import type { LagSummary } from "./generated/rest.ts";
import { byUrgency, sharedNames } from "./status.ts";
import { openStream, type StreamState } from "./stream.ts";

const DRAW_MS = 100;

const rows = new Map<string, Signal<LagSummary>>();
const waiting = new Map<string, LagSummary | null>();
let timer: ReturnType<typeof setTimeout> | undefined;

/** Of the stream. */
export const streamState = signal<StreamState>({ kind: "connecting" });
/** Rises with every change of any row. */
export const revision = signal(0);
/** Whether the first events are here. */
export const loaded = signal(false);
/** When the newest event came, epoch milliseconds. */
export const receivedAt = signal<number | null>(null);

/** All rows, in no order. */
export const summaries = computed<LagSummary[]>(() => {
  revision.value;
  return [...rows.values()].map((row) => row.peek());
});

const shared = computed(() => sharedNames(summaries.value));

/** Whether another query has the same name. */
export function sharesName({ query }: Pick<LagSummary, "query">): boolean {
  return shared.value.has(query ?? "");
}

/** The row of a query, which changes by itself. */
export function rowOf(queryId: string): Signal<LagSummary> | undefined {
  return rows.get(queryId);
}

/** Read the stream until the function that is returned is called. */
export function followFleet(): () => void {
  const close = openStream("stream", { summary: "true" }, {
    snapshot(documents) {
      waiting.clear();
      const events = documents.map((document) => JSON.parse(document) as LagSummary);
      const ids = new Set(events.map((event) => event.query_id));
      for (const id of rows.keys()) if (!ids.has(id)) waiting.set(id, null);
      for (const event of events) waiting.set(event.query_id, event);
      draw();
      loaded.value = true;
    },
    lag(document) {
      const event = JSON.parse(document) as LagSummary;
      waiting.set(event.query_id, event);
      timer ??= setTimeout(draw, DRAW_MS);
    },
    forgotten(queryId) {
      waiting.set(queryId, null);
      timer ??= setTimeout(draw, DRAW_MS);
    },
    state: (state) => (streamState.value = state),
  });
  return () => {
    close();
    clearTimeout(timer);
    timer = undefined;
    waiting.clear();
  };
}

function draw(): void {
  clearTimeout(timer);
  timer = undefined;
  batch(() => {
    for (const [id, event] of waiting) {
      if (event === null || event.superseded_by != null) {
        rows.delete(id);
        continue;
      }
      const row = rows.get(id);
      if (row) row.value = event;
      else rows.set(id, signal(event));
    }
    waiting.clear();
    receivedAt.value = Date.now();
    revision.value += 1;
  });
}

export interface Totals {
  queries: number;
  byStatus: [status: string, count: number][];
  records: number;
  /** Queries whose lag is not known: `records` leaves them out. */
  unknown: number;
  oldestS: number | null;
}

/** Of any queries. */
export function totalsOf(events: readonly LagSummary[]): Totals {
  const counts = new Map<string, number>();
  let records = 0;
  let unknown = 0;
  let oldestS: number | null = null;
  for (const event of events) {
    counts.set(event.status, (counts.get(event.status) ?? 0) + 1);
    if (event.total_lag == null) unknown += 1;
    else records += event.total_lag;
    if (event.total_lag !== 0 && event.max_time_lag_s != null) oldestS = Math.max(oldestS ?? 0, event.max_time_lag_s);
  }
  const byStatus = [...counts].sort(([a], [b]) => byUrgency(a, b));
  return { queries: events.length, byStatus, records, unknown, oldestS };
}
