/** A query's partitions by source and topic: skew at a glance, and each one's positions. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { printable, records, span, timeLag, unread } from "../format.ts";
import type { LagEvent, PartitionLag, TopicLag } from "../generated/rest.ts";
import { useMedia } from "../media.ts";
import { topicHref } from "../router.ts";
import { mark } from "../status.ts";
import { HeatStrip } from "./heat_strip.tsx";
import { LogPositions } from "./log_positions.tsx";
import { Foreign, StatusMark, Term } from "./text.tsx";
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
  const hasHeadroom = topic.partitions.some(({ headroom_s }) => headroom_s != null);
  const figures = (Object.keys(WIDTHS) as Column[]).filter((figure) => figure !== "headroom" || hasHeadroom);
  const lost = topic.partitions.some((each) => (each.lost_records ?? 0) > 0 || (each.processed_offset ?? Infinity) < (each.earliest_offset ?? 0));
  const planned = topic.partitions.some(({ planned_offset }) => planned_offset != null);
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
          <i class="done" /> processed {planned && <><i class="planned" /> in the running batch </>}<i class="left" /> not read
          {lost && <><i class="lost" /> deleted unread</>}
        </span>
      </p>
      <div role="table" aria-label={`Partitions of ${printable(topic.topic)}`} aria-rowcount={topic.partitions.length + 1} class="table partitions" style={{ "--columns": figures.map((figure) => WIDTHS[figure]).join(" ") }}>
        <div role="rowgroup">
          <div role="row" class="head" aria-rowindex={1}>
            {figures.map((figure) => (
              <div key={figure} role="columnheader" class={figure}>
                <Term of={figure} />
              </div>
            ))}
          </div>
        </div>
        <VirtualRows
          count={order.length}
          heightOf={() => (isNarrow ? CARD_PX : ROW_PX)}
          layout={String(isNarrow)}
          height="28rem"
          scrollTo={row}
          keyOf={String /* by place: another order changes texts, and makes no row anew */}
          render={(index) => {
            const partition = topic.partitions[order[index] ?? 0];
            return partition && <Row partition={partition} index={index} isChosen={order[index] === chosen.value} figures={figures} />;
          }}
        />
      </div>
    </section>
  );
}

type Column = "partition" | "status" | "lag" | "time_lag" | "headroom" | "log";

const WIDTHS: Record<Column, string> = {
  partition: "5rem", status: "7.5rem", lag: "8rem", time_lag: "6rem", headroom: "6rem", log: "minmax(10rem, 1fr)",
};

/** What a row shows in each column. */
const CELLS: Record<Column, (partition: PartitionLag) => ComponentChildren> = {
  partition: ({ partition }) => partition,
  status: ({ status, reason }) => (
    <span title={reason ? printable(reason) : undefined}>
      <StatusMark status={status ?? "UNKNOWN"} />
    </span>
  ),
  lag: (partition) => records(unread(partition)),
  time_lag: (partition) => {
    const lag = unread(partition);
    return `${partition.time_lag_method === "floor" && lag !== 0 ? "≥ " : ""}${timeLag(lag, partition.time_lag_s)}`;
  },
  headroom: ({ headroom_s }) => (headroom_s == null ? "" : span(headroom_s)),
  log: (partition) => <LogPositions partition={partition} />,
};

function Row({ partition, index, isChosen, figures }: { partition: PartitionLag; index: number; isChosen: boolean; figures: Column[] }) {
  return (
    <div role="row" class={`row ${mark(partition.status ?? "UNKNOWN")} ${isChosen ? "chosen" : ""}`} aria-rowindex={index + 2}>
      {figures.map((figure) => (
        <div key={figure} role="cell" class={figure}>
          {CELLS[figure](partition)}
        </div>
      ))}
    </div>
  );
}

function rank(partition: PartitionLag | undefined): number {
  return (partition && unread(partition)) ?? Number.MAX_SAFE_INTEGER;
}
