/** How urgent a status is. */

import type { LagSummary } from "./generated/rest.ts";

export type Mark = "bad" | "warn" | "ok";

const OK = new Set(["OK", "FINISHED"]);
const BAD = new Set(["STALL", "STOP", "REWIND", "CONFLICT", "RECREATED", "GONE", "DATA_LOSS", "FAILED"]);

/** A status that this version does not know is one to look at. */
export function mark(status: string): Mark {
  return OK.has(status) ? "ok" : BAD.has(status) ? "bad" : "warn";
}

/** A shape for each mark: colour alone tells nobody who does not see it. */
export const GLYPHS: Record<Mark, string> = { bad: "■", warn: "▲", ok: "●" };

const RANK: Record<Mark, number> = { bad: 0, warn: 1, ok: 2 };

/** Names in their order; once made, many times faster than `localeCompare`. */
export const { compare } = new Intl.Collator();

/** Statuses by urgency, then by their words. */
export function byUrgency(a: string, b: string): number {
  return RANK[mark(a)] - RANK[mark(b)] || compare(a, b);
}

/** The age of the oldest record; one that is not known comes before all that are, as in the terminal. */
function age(event: LagSummary): number {
  return event.total_lag === 0 ? 0 : (event.max_time_lag_s ?? Infinity);
}

/** The worst first: by mark, then the oldest record, then the lag. */
export function bySeverity(a: LagSummary, b: LagSummary): number {
  return (
    RANK[mark(a.status)] - RANK[mark(b.status)] ||
    // Of two that are not known the difference is NaN, which decides nothing.
    age(b) - age(a) ||
    (b.total_lag ?? Infinity) - (a.total_lag ?? Infinity) ||
    compare(displayName(a), displayName(b)) ||
    compare(a.query_id, b.query_id)
  );
}

/** Whether no driver reports the query: it can be forgotten. */
export function isDead({ run_id, status, runs, driver_end }: Pick<LagSummary, "run_id" | "status" | "runs" | "driver_end">): boolean {
  return run_id === null ? status === "UNKNOWN" : ["STOP", "FAILED", "FINISHED"].includes(status) || runs?.ended === true || driver_end === "closed";
}

/** The names that several of these queries have. */
export function sharedNames(events: readonly { query?: string | null }[]): Set<string> {
  const seen = new Set<string>(), shared = new Set<string>();
  for (const { query } of events) if (query) (seen.has(query) ? shared : seen).add(query);
  return shared;
}

export function displayName(event: { query?: string | null; query_id: string }): string {
  return event.query || event.query_id;
}
