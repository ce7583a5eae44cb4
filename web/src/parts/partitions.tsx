/** A query's partitions by source and topic: skew at a glance, and each one's positions. */

import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { oldest, printable, records, span, unread } from "../format.ts";
import type { LagEvent, PartitionLag, TopicLag } from "../generated/rest.ts";
import { useMedia } from "../media.ts";
import { topicHref } from "../router.ts";
import { mark } from "../status.ts";
import { HeatStrip } from "./heat_strip.tsx";
import { LogPositions } from "./log_positions.tsx";
import { Foreign, StatusMark } from "./text.tsx";
import { VirtualRows } from "./virtual_rows.tsx";

const ROW_PX = 40;
const CARD_PX = 92;

export function Partitions({ event }: { event: LagEvent }) {
  const sources = new Set(event.topics.map((topic) => topic.source)).size;
  return (
    <section aria-label="Partitions">
      {event.topics.map((topic) => (
        <TopicPartitions key={`${topic.source} ${topic.topic}`} topic={topic} withSource={sources > 1} />
      ))}
    </section>
  );
}

function TopicPartitions({ topic, withSource }: { topic: TopicLag; withSource: boolean }) {
  const chosen = useSignal<number | null>(null);
  const worstFirst = useSignal(false);
  const isNarrow = useMedia("(max-width: 48rem)");
  const order = useMemo(() => {
    const indices = topic.partitions.map((_, index) => index);
    if (worstFirst.value) indices.sort((a, b) => rank(topic.partitions[b]) - rank(topic.partitions[a]) || a - b);
    return indices;
  }, [topic.partitions, worstFirst.value]);
  const row = chosen.value === null ? null : order.indexOf(chosen.value);
  return (
    <section class="topic">
      <h2>
        <a href={topicHref(topic.topic)}>
          <Foreign text={topic.topic} />
        </a>
        {withSource && <small> source {topic.source}</small>}
        <small>
          {" "}
          {records(topic.partitions.length)} partitions, {records(topic.total_lag)} records behind
        </small>
      </h2>
      <HeatStrip partitions={topic.partitions} chosen={chosen.value} onChoose={(index) => (chosen.value = index < topic.partitions.length ? index : null)} />
      <p class="legend">
        <label>
          <input type="checkbox" checked={worstFirst.value} onChange={(event) => (worstFirst.value = event.currentTarget.checked)} /> Worst first
        </label>
        <span>
          <i class="done" /> processed <i class="planned" /> in the running batch <i class="left" /> not read <i class="lost" /> deleted unread
        </span>
      </p>
      <div role="table" aria-label={`Partitions of ${printable(topic.topic)}`} aria-rowcount={topic.partitions.length + 1} class="table partitions">
        <div role="rowgroup">
          <div role="row" class="head" aria-rowindex={1}>
            {["Partition", "Status", "Lag", "Time lag", "Headroom", "Log: earliest to latest"].map((name) => (
              <div key={name} role="columnheader">
                {name}
              </div>
            ))}
          </div>
        </div>
        <VirtualRows
          count={order.length}
          rowHeight={isNarrow ? CARD_PX : ROW_PX}
          height="28rem"
          scrollTo={row}
          keyOf={String /* by place: another order changes texts, and makes no row anew */}
          render={(index) => {
            const partition = topic.partitions[order[index] ?? 0];
            return partition && <Row partition={partition} index={index} isChosen={order[index] === chosen.value} />;
          }}
        />
      </div>
    </section>
  );
}

function Row({ partition, index, isChosen }: { partition: PartitionLag; index: number; isChosen: boolean }) {
  const status = partition.status ?? "UNKNOWN";
  const lag = unread(partition);
  return (
    <div role="row" class={`row ${mark(status)} ${isChosen ? "chosen" : ""}`} aria-rowindex={index + 2}>
      <div role="cell" class="number">{partition.partition}</div>
      <div role="cell" title={partition.reason ? printable(partition.reason) : undefined}>
        <StatusMark status={status} />
      </div>
      <div role="cell" class="number">{records(lag)}</div>
      <div role="cell" class="number">
        {partition.time_lag_method === "floor" && lag !== 0 && "≥ "}
        {oldest(lag, partition.time_lag_s)}
      </div>
      <div role="cell" class="number">{partition.headroom_s == null ? "" : span(partition.headroom_s)}</div>
      <div role="cell" class="positions">
        <LogPositions partition={partition} />
      </div>
    </div>
  );
}

function rank(partition: PartitionLag | undefined): number {
  return (partition && unread(partition)) ?? Number.MAX_SAFE_INTEGER;
}
