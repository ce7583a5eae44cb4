/** Which queries are shown, and in which order: all of it in the address. */

import { bySeverity, byUrgency, compare, displayName } from "./status.ts";
import type { LagSummary } from "./generated/rest.ts";

export interface Filters {
  text: string;
  status: string;
  topic: string;
  cluster: string;
  application: string;
}

/** The parameters of the address that filter. */
export const FILTERS = ["filter", "status", "topic", "cluster", "application"] as const;

export function filtersOf(params: URLSearchParams): Filters {
  return {
    text: params.get("filter") ?? "",
    status: params.get("status")?.toUpperCase() ?? "",
    topic: params.get("topic") ?? "",
    cluster: params.get("cluster") ?? "",
    application: params.get("application") ?? "",
  };
}

export function matches(event: LagSummary, filters: Filters): boolean {
  const { text, status, topic, cluster, application } = filters;
  return (
    (status === "" || event.status === status) &&
    (topic === "" || event.topics.includes(topic)) &&
    (cluster === "" || (event.cluster ?? "default") === cluster) &&
    (application === "" || event.application === application) &&
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
    if (key === "query") return sign * compare(displayName(a), displayName(b)) || compare(a.query_id, b.query_id);
    const value = VALUES[key];
    const [x, y] = [value(a) ?? null, value(b) ?? null];
    if (x === null || y === null) return x === y ? bySeverity(a, b) : x === null ? 1 : -1;
    return sign * (x - y) || bySeverity(a, b);
  };
  return [...events].sort(order);
}

/** A heading above the rows that belong to it. */
export interface Section {
  heading: string;
  count: number;
}

/** Rows by id, and above them headings: by application, where that is chosen; groups apart from queries, last. */
export function sections(events: readonly LagSummary[], byApplication: boolean): (string | Section)[] {
  const bySection = new Map<string, string[]>();
  for (const { origin, application, query_id } of events) {
    const heading =
      origin === "group" ? GROUPS : !byApplication ? "Spark queries" : application ? `Application ${application}` : "Without a driver";
    const ids = bySection.get(heading);
    if (ids) ids.push(query_id);
    else bySection.set(heading, [query_id]);
  }
  if (bySection.size <= 1 && !byApplication) return [...bySection.values()].flat();
  const last = (heading: string) => Number(heading === GROUPS);
  return [...bySection]
    .sort(([a], [b]) => last(a) - last(b))
    .flatMap(([heading, ids]) => [{ heading, count: ids.length }, ...ids]);
}

const GROUPS = "Consumer groups";

/** What a reader can choose from. */
export function choices(events: readonly LagSummary[]): { statuses: string[]; topics: string[]; clusters: string[]; applications: string[] } {
  const statuses = new Set<string>(), topics = new Set<string>(), clusters = new Set<string>(), applications = new Set<string>();
  for (const event of events) {
    statuses.add(event.status);
    if (event.application) applications.add(event.application);
    clusters.add(event.cluster ?? "default");
    for (const topic of event.topics) topics.add(topic);
  }
  return {
    statuses: [...statuses].sort(byUrgency),
    topics: [...topics].sort(compare),
    clusters: [...clusters].sort(compare),
    applications: [...applications].sort(compare),
  };
}
