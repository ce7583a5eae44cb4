/** Annotations of a query's charts: starts, failures and other changes, from its history. */

import type { HistoryChange } from "./generated/rest.ts";
import { mark } from "./status.ts";

/** Something that happened to a query. */
export interface Annotation {
  /** Epoch milliseconds. */
  at: number;
  glyph: string;
  /** Of styles.css. */
  colour: string;
  text: string;
}

const SHOWN: Record<string, [glyph: string, text: string]> = {
  FAILED: ["✖", "failed"],
  STOP: ["■", "its driver stopped reporting"],
  FINISHED: ["◼", "finished"],
  REWIND: ["↶", "went back"],
  DATA_LOSS: ["▼", "lost data"],
  RECREATED: ["⟳", "its topic was recreated"],
  STALL: ["‖", "stalled"],
  GONE: ["∅", "its topic is gone"],
  CONFLICT: ["≠", "two runs at a time"],
  WARN: ["▲", "warned"],
  UNKNOWN: ["?", "its lag was not known"],
};

/** The changes in words, as many as there are. */
export function annotations(changes: readonly HistoryChange[]): Annotation[] {
  return changes.flatMap(({ at, status, before }) => {
    if (status === null) return [{ at, glyph: "▶", colour: "ok", text: before === null ? "started" : "started again" }];
    if (status === "UNKNOWN" && before === null) return []; // as every query is before its first measurement
    const ended = before === "UNKNOWN" ? "its lag is known" : `recovered from ${before}`;
    const [glyph, text] = SHOWN[status] ?? ["✔", before === null ? null : status === "OK" ? ended : `became ${status}`];
    return text === null ? [] : [{ at, glyph, colour: mark(status), text }];
  });
}
