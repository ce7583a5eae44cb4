/** Annotations of a query's charts: starts, failures and other changes, from its history. */

import type { HistoryPoint } from "./generated/rest.ts";
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

const STARTED = "▶";
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
};

/** What changed from one step to the next: a status that lasts is one event. */
export function annotations(points: readonly HistoryPoint[]): Annotation[] {
  const annotated: Annotation[] = [];
  let before = new Set<string>();
  for (const [index, { at, started, statuses }] of points.entries()) {
    if (started) annotated.push({ at, glyph: STARTED, colour: "ok", text: index === 0 ? "started" : "started again" });
    for (const status of statuses) {
      const shown = SHOWN[status];
      if (!shown || before.has(status)) continue;
      annotated.push({ at, glyph: shown[0], colour: mark(status), text: shown[1] });
    }
    before = new Set(statuses);
  }
  return annotated;
}
