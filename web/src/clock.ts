/** The time, for ages: one timer for the whole page. */

import { signal } from "@preact/signals";

/** Epoch milliseconds, each second. */
export const now = signal(Date.now());

setInterval(() => (now.value = Date.now()), 1_000);
