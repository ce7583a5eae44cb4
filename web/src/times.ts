/** How times are shown: their age, in the zone of the browser, or in UTC; kept in this browser. */

import { signal } from "@preact/signals";
import { stored } from "./storage.ts";

export const TIMES = { relative: "Times: relative", local: "Times: local", utc: "Times: UTC" } as const;
export type Times = keyof typeof TIMES;

const kept = stored("sparklag-times", Object.keys(TIMES) as Times[], "relative");

export const times = signal<Times>(kept.value);

export function setTimes(value: Times): void {
  times.value = value;
  kept.keep(value);
}
