/** Which queries are shown, and in which order: all of it in the address. */

import { bySeverity, byUrgency, displayName } from "./status.ts";
import type { LagSummary } from "./generated/rest.ts";

export interface Filters {
  text: string;
  status: string;
  topic: string;
  cluster: string;
}

export function filtersOf(params: URLSearchParams): Filters {
  return {
    text: params.get("filter") ?? "",
    status: params.get("status")?.toUpperCase() ?? "",
    topic: params.get("topic") ?? "",
    cluster: params.get("cluster") ?? "",
  };
}

export function matches(event: LagSummary, filters: Filters): boolean {
  const { text, status, topic, cluster } = filters;
  return (
    (status === "" || event.status === status) &&
    (topic === "" || event.topics.includes(topic)) &&
    (cluster === "" || (event.cluster ?? "default") === cluster) &&
    (text === "" || searched(event).includes(text.toLowerCase()))
  );
}

function searched(event: LagSummary): string {
  return [event.query, event.query_id, event.status, event.reason, ...event.topics].join("\n").toLowerCase();
}

export type SortKey = "severity" | "query" | "lag" | "age" | "trend" | "catch_up" | "headroom" | "batch" | "measured";

/** The value of a column that rows are ordered by; null comes last in either direction. */
const VALUES: Record<Exclude<SortKey, "severity" | "query">, (event: LagSummary) => number | null | undefined> = {
  lag: (event) => event.total_lag,
  age: (event) => (event.total_lag === 0 ? 0 : event.max_time_lag_s),
  trend: (event) => event.lag_trend,
  catch_up: (event) => event.catch_up_s,
  headroom: (event) => event.min_headroom_s,
  batch: (event) => event.running_batch && event.running_batch.started_at,
  measured: (event) => event.measured_at,
};

export interface Sort {
  key: SortKey;
  descending: boolean;
}

/** The direction that a column is sorted in at first. */
export const DESCENDS: Record<SortKey, boolean> = {
  severity: false, query: false, lag: true, age: true, trend: true, catch_up: true, headroom: false, batch: false,
  measured: false,
};

export function sortOf(params: URLSearchParams): Sort {
  const [name = "", direction] = (params.get("sort") ?? "").split(":");
  const key = Object.hasOwn(DESCENDS, name) ? (name as SortKey) : "severity";
  return { key, descending: direction ? direction === "desc" : DESCENDS[key] };
}

export function sorted(events: readonly LagSummary[], { key, descending }: Sort): LagSummary[] {
  const sign = descending ? -1 : 1;
  const order = (a: LagSummary, b: LagSummary): number => {
    if (key === "severity") return sign * bySeverity(a, b);
    if (key === "query") return sign * displayName(a).localeCompare(displayName(b)) || a.query_id.localeCompare(b.query_id);
    const value = VALUES[key];
    const [x, y] = [value(a) ?? null, value(b) ?? null];
    if (x === null || y === null) return x === y ? bySeverity(a, b) : x === null ? 1 : -1;
    return sign * (x - y) || bySeverity(a, b);
  };
  return [...events].sort(order);
}

/** What a reader can choose from. */
export function choices(events: readonly LagSummary[]): { statuses: string[]; topics: string[]; clusters: string[] } {
  const statuses = new Set<string>(), topics = new Set<string>(), clusters = new Set<string>();
  for (const event of events) {
    statuses.add(event.status);
    clusters.add(event.cluster ?? "default");
    for (const topic of event.topics) topics.add(topic);
  }
  return {
    statuses: [...statuses].sort(byUrgency),
    topics: [...topics].sort((a, b) => a.localeCompare(b)),
    clusters: [...clusters].sort((a, b) => a.localeCompare(b)),
  };
}
