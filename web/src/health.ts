/** What fails in the service itself: `GET /health/ready`, asked regularly. */

import { signal } from "@preact/signals";
import { address } from "./api.ts";

export interface Health {
  /** Part, then why: what is shown may be old or incomplete. */
  failing: Record<string, string>;
  /** The same of what concerns single queries. */
  degraded: Record<string, string>;
  /** The name of the instance that answered; null: not for this reader. */
  instance: string | null;
}

const INTERVAL_MS = 3_000;

/** Null: not known yet, or the service does not answer. */
export const health = signal<Health | null>(null);

/** Ask until the function that is returned is called. */
export function followHealth(): () => void {
  let closed = false;
  let timer: ReturnType<typeof setTimeout>;
  const ask = async () => {
    try {
      // 503 has the same document.
      const response = await fetch(address("health/ready"), { headers: { accept: "application/json" } });
      const document = (await response.json()) as Health;
      health.value = { failing: document.failing ?? {}, degraded: document.degraded ?? {}, instance: document.instance ?? null };
    } catch {
      health.value = null;
    }
    if (!closed) timer = setTimeout(ask, INTERVAL_MS);
  };
  void ask();
  return () => {
    closed = true;
    clearTimeout(timer);
  };
}
