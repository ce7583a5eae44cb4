/** A partition's log from its earliest offset to its latest, with the query's positions on it. */

import { records } from "../format.ts";
import type { PartitionLag } from "../generated/rest.ts";

/** Each part is as long as it has offsets, but never so short that it cannot be seen. */
export function LogPositions({ partition }: { partition: PartitionLag }) {
  const { earliest_offset: earliest, processed_offset: processed, planned_offset: planned, latest_offset: latest } = partition;
  const waiting = partition.open_transaction?.records;
  const text = [
    ["earliest", earliest],
    ["processed", processed],
    ["planned", planned],
    ["latest", latest],
  ]
    .map(([name, offset]) => `${name} ${offset == null ? "unknown" : records(offset as number)}`)
    .join(", ")
    .concat(waiting == null ? "" : `, ${records(waiting)} behind an open transaction`);
  if (earliest == null || latest == null || processed == null) return <span title={text}>{processed == null ? "" : records(processed)}</span>;
  const kept = Math.max(processed, earliest);
  const reached = Math.max(kept, Math.min(planned ?? processed, latest));
  return (
    <span class="bar-of-log" role="img" aria-label={text} title={text}>
      <Part kind="done" size={processed - earliest} />
      <i class="at" />
      <Part kind="lost" size={earliest - processed} />
      <Part kind="planned" size={reached - kept} />
      <Part kind="left" size={latest - reached} />
    </span>
  );
}

function Part({ kind, size }: { kind: string; size: number }) {
  return size > 0 ? <i class={kind} style={{ flexGrow: size }} /> : null;
}
