/** `/t/{topic}`: who reads a topic, and how near retention is to each. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { getJson, segment } from "../api.ts";
import { perSecond, printable, records, timeLag, unread } from "../format.ts";
import type { LagEvent, LagPage, LagSummary, TopicLag } from "../generated/rest.ts";
import { useKeys } from "../keys.ts";
import { FigureTable } from "../parts/figure_table.tsx";
import { Header } from "../parts/header.tsx";
import { Age, Figure, Foreign, Headroom, QueryLink, StatusMark } from "../parts/text.tsx";
import { goBack, pageHref, useTitle } from "../router.ts";
import { bySeverity, compare, sharedNames } from "../status.ts";
import type { StreamState } from "../stream.ts";

const INTERVAL_MS = 3_000;
const MOST_READERS = 200;
const AT_ONCE = 4;

/** A query or group, and the topic as its sources read it. */
interface Reader {
  event: LagEvent;
  topics: TopicLag[];
}

/** The log of a topic in one cluster, as far as its readers know it. */
interface Log {
  cluster: string;
  partitions: number;
  /** Records between the earliest and the latest offsets; null: not known. */
  retained: number | null;
  latest: number | null;
  measuredAt: number;
}

export function TopicPage({ topic }: { topic: string }) {
  const readers = useSignal<Reader[] | null>(null);
  const left = useSignal(0);
  const rates = useSignal<Map<string, number>>(new Map());
  const state = useSignal<StreamState>({ kind: "connecting" });
  const receivedAt = useSignal<number | null>(null);

  useKeys({ Escape: goBack });
  useTitle(printable(topic));
  useEffect(() => {
    const closed = new AbortController();
    let timer: ReturnType<typeof setTimeout>;
    const first = new Map<string, Log>();
    const read = async () => {
      try {
        const { events, leftOut } = await readersOf(topic, closed.signal);
        readers.value = events;
        left.value = leftOut;
        rates.value = ratesSince(first, logsOf(events));
        receivedAt.value = Date.now();
        state.value = { kind: "live" };
      } catch (error) {
        if (closed.signal.aborted) return;
        state.value = { kind: "down", since: Date.now(), reason: (error as Error).message };
      }
      timer = setTimeout(read, INTERVAL_MS);
    };
    void read();
    return () => {
      closed.abort();
      clearTimeout(timer);
    };
  }, [topic]);

  const all = readers.value;
  return (
    <>
      <Header state={state.value} receivedAt={receivedAt.value} />
      <main id="main" tabIndex={-1}>
        <p class="trail">
          <a href={pageHref("topics")}>Topics</a>
        </p>
        <h1 class="name">
          Topic <Foreign text={topic} />
        </h1>
        {all === null ? (
          <p class="empty">Reading the topic …</p>
        ) : all.length === 0 ? (
          <p class="empty">No observed query or group reads this topic. Groups are watched where `groups.allow` has their names.</p>
        ) : (
          <>
            {logsOf(all).map((log) => (
              <dl class="totals" key={log.cluster} aria-label={`Cluster ${log.cluster}`}>
                <Figure of={{ name: "Cluster" }}>{printable(log.cluster)}</Figure>
                <Figure of={{ name: "Partitions" }}>{records(log.partitions)}</Figure>
                <Figure of="retained">{records(log.retained)}</Figure>
                <Figure of="produced">{rates.value.has(log.cluster) ? perSecond(rates.value.get(log.cluster)) : "measuring …"}</Figure>
              </dl>
            ))}
            <Readers readers={all} leftOut={left.value} />
          </>
        )}
      </main>
    </>
  );
}

async function readersOf(topic: string, signal: AbortSignal): Promise<{ events: Reader[]; leftOut: number }> {
  const listed: LagSummary[] = [];
  let cursor: string | null | undefined = null;
  do {
    const page: LagPage = await getJson<LagPage>("lag", { topic, limit: 1000, cursor }, signal);
    listed.push(...page.queries);
    cursor = page.next_cursor;
  } while (cursor && listed.length < 10_000);
  listed.sort(bySeverity);
  const shown = listed.slice(0, MOST_READERS);
  const events: Reader[] = [];
  for (let from = 0; from < shown.length; from += AT_ONCE) {
    const some = shown.slice(from, from + AT_ONCE).map(async ({ query_id }) => {
      try {
        const event = await getJson<LagEvent>(`lag/${segment(query_id)}`, {}, signal);
        events.push({ event, topics: event.topics.filter((each) => each.topic === topic) });
      } catch (error) {
        if (signal.aborted || error instanceof TypeError) throw error;
        // It was forgotten in the meantime.
      }
    });
    await Promise.all(some);
  }
  events.sort((a, b) => bySeverity(summaryOf(a.event), summaryOf(b.event)));
  return { events, leftOut: listed.length - shown.length };
}

function summaryOf(event: LagEvent): LagSummary {
  return event as unknown as LagSummary;
}

function logsOf(readers: readonly Reader[]): Log[] {
  const byCluster = new Map<string, Log>();
  for (const { event, topics } of readers) {
    for (const { cluster, partitions } of topics) {
      const alias = cluster ?? "unknown";
      const newest = byCluster.get(alias);
      if (newest && (newest.partitions > partitions.length || newest.measuredAt >= event.measured_at)) continue;
      const sum = (value: (p: (typeof partitions)[number]) => number | null | undefined) =>
        partitions.reduce<number | null>((total, partition) => {
          const offset = value(partition);
          return total === null || offset == null ? null : total + offset;
        }, 0);
      const latest = sum((partition) => partition.latest_offset);
      const earliest = sum((partition) => partition.earliest_offset);
      byCluster.set(alias, {
        cluster: alias,
        partitions: partitions.length,
        retained: latest === null || earliest === null ? null : latest - earliest,
        latest,
        measuredAt: event.measured_at,
      });
    }
  }
  return [...byCluster.values()].sort((a, b) => compare(a.cluster, b.cluster));
}

/** Records a second by cluster since the first measurement; a log that became shorter begins anew. */
function ratesSince(first: Map<string, Log>, logs: Log[]): Map<string, number> {
  const rates = new Map<string, number>();
  for (const log of logs) {
    const since = first.get(log.cluster);
    if (log.latest === null) continue;
    if (!since || since.latest === null || log.latest < since.latest || log.partitions !== since.partitions) {
      first.set(log.cluster, log);
      continue;
    }
    const seconds = (log.measuredAt - since.measuredAt) / 1000;
    if (seconds >= 2) rates.set(log.cluster, (log.latest - since.latest) / seconds);
  }
  return rates;
}

const FIGURES = ["status", "query", "lag", "time_lag", "headroom", "last_measured"] as const;

function Readers({ readers, leftOut }: { readers: Reader[]; leftOut: number }) {
  const rows = readers.map((reader) => ({ reader, headroom: headroomOf(reader) }));
  const hasHeadroom = rows.some(({ headroom }) => headroom !== null);
  const shared = sharedNames(readers.map(({ event }) => event));
  return (
    <>
      <FigureTable name="Readers" figures={FIGURES.filter((figure) => figure !== "headroom" || hasHeadroom)}>
        {rows.map(({ reader: { event, topics }, headroom }) => {
          const lag = topics.reduce<number | null>((sum, { total_lag }) => (total_lag == null ? sum : (sum ?? 0) + total_lag), null);
          const ages = topics.flatMap(({ partitions }) => partitions.map(({ time_lag_s }) => time_lag_s));
          return (
            <tr key={event.query_id}>
              <td>
                <StatusMark status={event.status} />
              </td>
              <th scope="row">
                <QueryLink event={event} isShared={shared.has(event.query ?? "")} />
                {event.origin === "group" && <small> consumer group</small>}
              </th>
              <td class="lag">{records(lag)}</td>
              <td class="time_lag">{timeLag(lag, highest(ages))}</td>
              {hasHeadroom && <td class="headroom">{headroom}</td>}
              <td class="last_measured">
                <Age at={event.measured_at} />
              </td>
            </tr>
          );
        })}
      </FigureTable>
      {leftOut > 0 && <p>and {records(leftOut)} more readers, which are less urgent</p>}
    </>
  );
}

/** Of the partitions of the topic that have something to read. */
function headroomOf({ topics }: Reader): ComponentChildren {
  const partitions = topics.flatMap((topic) => topic.partitions);
  const distances = partitions.map((p) => (p.processed_offset != null && p.earliest_offset != null ? p.processed_offset - p.earliest_offset : null));
  if (distances.some((distance) => distance !== null && distance < 0)) return <strong class="bad">unread records are deleted</strong>;
  const count = lowest(distances.filter((_, index) => unread(partitions[index] ?? {})));
  const seconds = lowest(partitions.map((partition) => (unread(partition) ? partition.headroom_s : null)));
  return count === null && seconds === null ? null : <Headroom seconds={seconds} count={count} />;
}

function highest(values: (number | null | undefined)[]): number | null {
  return values.reduce<number | null>((top, value) => (value == null ? top : Math.max(top ?? value, value)), null);
}

function lowest(values: (number | null | undefined)[]): number | null {
  return values.reduce<number | null>((low, value) => (value == null ? low : Math.min(low ?? value, value)), null);
}
