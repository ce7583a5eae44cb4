/** Spark's `startingOffsets` of a query. */

import type { LagEvent } from "./generated/rest.ts";

/**
 * The offsets that it reads next, as JSON: topic, then partition. Of a query with several sources, a
 * line for each. A partition of which no offset is known is left out: Spark begins it at its earliest.
 */
export function startingOffsets(event: LagEvent): string {
  const bySource = new Map<number, Record<string, Record<string, number>>>();
  for (const { source, topic, partitions } of event.topics) {
    const offsets: Record<string, number> = {};
    for (const { partition, processed_offset: offset } of partitions) if (offset != null) offsets[partition] = offset;
    bySource.set(source, { ...bySource.get(source), [topic]: offsets });
  }
  return [...bySource].sort(([a], [b]) => a - b).map(([, offsets]) => JSON.stringify(offsets)).join("\n");
}
