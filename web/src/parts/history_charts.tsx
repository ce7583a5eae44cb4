/** A query's lag, time lag, rates and batches over time, with annotations. */

import type { ComponentProps } from "preact";
import { counts, number, perSecond, printable, records, span, SPAN_STEPS, spanTicks } from "../format.ts";
import type { HistoryPage, HistoryPoint, LagEvent } from "../generated/rest.ts";
import { annotations } from "../annotations.ts";
import { Chart } from "./chart.tsx";
import { Moment } from "./text.tsx";

interface Props {
  page: HistoryPage;
  /** The newest event, where the range ends now: the history has it later. */
  newest: LagEvent | null;
  onZoom(since: number, until: number): void;
}

type BatchTimes = NonNullable<HistoryPoint["batch"]>;

/** By step; undefined: the query was not measured in it. */
interface Steps {
  times: number[];
  points: (HistoryPoint | undefined)[];
}

export function HistoryCharts({ page, newest, onZoom }: Props) {
  if (page.points.length === 0 && newest === null) {
    return <p class="empty">{page.reason ? printable(page.reason) : "The query was not measured in this time."}</p>;
  }
  const { times, points } = stepsOf(page);
  const annotated = annotations(page.changes);
  // A query that is known only since a part of the time has the whole width for that part.
  const known = page.points[0]?.at ?? newest?.measured_at ?? page.since;
  const range: [number, number] = [newest ? Math.max(page.since, known) : page.since, newest?.measured_at ?? page.until];
  const column = (value: (point: HistoryPoint) => number | null | undefined, now?: number | null) => {
    const values = points.map((point) => (point ? value(point) ?? null : null));
    return newest ? [...values, now ?? null] : values;
  };
  const all = newest ? [...times, Math.max(newest.measured_at, (times.at(-1) ?? 0) + 1)] : times;
  const common = { times: all, markers: annotated, range, onZoom };
  const phase = (value: (batch: BatchTimes) => number) => {
    const seconds = (point: HistoryPoint | undefined) => (point?.batch ? value(point.batch) / 1000 : null);
    return column(seconds, null); // no batch completes at this very moment
  };
  const seconds = (value: number | null) => (value === null ? "unknown" : span(value));
  return (
    <>
      <div class="charts">
        <ChartOfKnown {...common} figure="lag" format={records} axis={counts} series={[
          { name: "lag", colour: "series-1", filled: true, values: column((point) => point.max_total_lag, newest?.total_lag) },
        ]} />
        <ChartOfKnown {...common} figure="time_lag" format={seconds} axis={spanTicks} steps={SPAN_STEPS} series={[
          { name: "time lag", colour: "series-2", filled: true, values: column((point) => point.max_time_lag_s, newest?.max_time_lag_s) },
        ]} />
        <ChartOfKnown {...common} figure="rates" format={perSecond} axis={counts} series={[
          { name: "input", colour: "series-2", dash: [6, 4], values: column((point) => point.input_rate, newest?.input_rate) },
          { name: "processed", colour: "series-1", values: column((point) => point.processed_rate, newest?.processed_rate) },
        ]} />
        <ChartOfKnown {...common} figure="batch" stacked format={(value) => (value === null ? "none" : span(value))} axis={spanTicks} steps={SPAN_STEPS} series={[
          { name: "planning", colour: "phase-1", values: phase((batch) => batch.planning_ms) },
          { name: "processing", colour: "phase-2", values: phase((batch) => batch.processing_ms) },
          { name: "commit", colour: "phase-3", values: phase((batch) => batch.commit_ms) },
          { name: "other", colour: "phase-4", values: phase(otherMs) },
        ]} />
      </div>
      {annotated.length > 0 && (
        <ul class="events" aria-label="Events">
          {annotated.slice(-20).reverse().map(({ at, glyph, text, colour }) => (
            <li key={`${at} ${text}`}>
              <span class={colour} aria-hidden="true">{glyph}</span> <Moment at={at} /> {text}
            </li>
          ))}
          {annotated.length > 20 && <li>and {number(annotated.length - 20)} earlier ones</li>}
        </ul>
      )}
    </>
  );
}

/** Without the series of which nothing is known in this time. */
function ChartOfKnown({ series, ...props }: ComponentProps<typeof Chart>) {
  const known = series.filter(({ values }) => values.some((value) => value !== null));
  return known.length > 0 ? <Chart {...props} series={known} /> : null;
}

function otherMs(batch: BatchTimes): number {
  return Math.max(0, batch.duration_ms - batch.planning_ms - batch.processing_ms - batch.commit_ms);
}

function stepsOf(page: HistoryPage): Steps {
  const stepMs = page.step_s * 1000;
  const byStep = new Map(page.points.map((point) => [point.at, point]));
  const times: number[] = [];
  for (let at = page.since; at < page.until && at <= (page.points.at(-1)?.at ?? 0); at += stepMs) times.push(at);
  return { times, points: times.map((at) => byStep.get(at)) };
}
