/** Lag over the last half hour of the queries that are in view: one request each, when it is needed. */

import { signal, type Signal } from "@preact/signals";
import { getJson, segment } from "./api.ts";
import type { HistoryPage, LagSummary } from "./generated/rest.ts";

/** Total lag by step; null: not measured, or not known. */
export type Trend = (number | null)[];

const STEPS = 60;
const STEP_MS = 30_000;
const AT_ONCE = 3; // a browser has six connections to a host, and a stream takes one

interface Entry {
  trend: Signal<Trend | null>;
  /** The step that the last value is of. */
  last: number;
}

const entries = new Map<string, Entry>();
const queue: string[] = [];
let running = 0;

/** The trend of a query; null until it has come. */
export function trendOf(queryId: string): Signal<Trend | null> {
  let entry = entries.get(queryId);
  if (!entry) {
    entry = { trend: signal<Trend | null>(null), last: 0 };
    entries.set(queryId, entry);
    queue.push(queryId);
    next();
  }
  return entry.trend;
}

/** Take a query's newest lag in, where its trend is shown. */
export function extendTrend(event: LagSummary): void {
  const entry = entries.get(event.query_id);
  if (!entry || entry.trend.peek() === null) return;
  const step = Math.floor(event.measured_at / STEP_MS);
  const values = [...(entry.trend.peek() as Trend)];
  const lag = event.total_lag ?? null;
  if (step - entry.last >= STEPS) {
    entries.delete(event.query_id); // it was out of view for long
    return;
  }
  for (; entry.last < step; entry.last += 1) {
    values.shift();
    values.push(null);
  }
  if (values[STEPS - 1] === lag) return;
  values[STEPS - 1] = lag;
  entry.trend.value = values;
}

/** The last that were asked for are those in view. */
function next(): void {
  while (running < AT_ONCE) {
    const queryId = queue.pop();
    if (queryId === undefined) return;
    running += 1;
    void load(queryId).finally(() => {
      running -= 1;
      next();
    });
  }
}

async function load(queryId: string): Promise<void> {
  const entry = entries.get(queryId);
  if (!entry) return;
  try {
    const page = await getJson<HistoryPage>(`lag/${segment(queryId)}/history`, {
      since: `${(STEPS * STEP_MS) / 60_000}m`,
      step: `${STEP_MS / 1000}s`,
    });
    const last = Math.floor(Date.now() / STEP_MS);
    const values: Trend = Array.from({ length: STEPS }, () => null);
    for (const point of page.points) {
      const index = STEPS - 1 - (last - Math.floor(point.at / STEP_MS));
      if (index >= 0 && index < STEPS) values[index] = point.max_total_lag ?? null;
    }
    entry.last = last;
    entry.trend.value = values;
  } catch {
    entries.delete(queryId); // asked for again when it is next in view
  }
}
