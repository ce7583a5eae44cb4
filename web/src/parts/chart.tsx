/** A chart over time, with the events of the query on its axis. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { DEFINITIONS, type Figure } from "../definitions.ts";
import { local, onAxis, utc } from "../format.ts";
import type { Annotation } from "../annotations.ts";
import { colour, shown } from "../theme.ts";
import { times } from "../times.ts";
import { Term } from "./text.tsx";

export interface Series {
  name: string;
  /** Of styles.css. */
  colour: string;
  /** By time; null: not measured, or not known. The line is broken there. */
  values: (number | null)[];
  dash?: number[];
  filled?: boolean;
}

interface Props {
  figure: Figure;
  /** Epoch milliseconds, rising. */
  times: number[];
  series: Series[];
  markers: Annotation[];
  /** Of the axis of time, epoch milliseconds. */
  range: [number, number];
  format(value: number | null): string;
  /** The ticks of the axis of values. */
  axis(values: readonly number[]): string[];
  /** Steps between them; without: 1, 2 and 5 times powers of ten. */
  steps?: number[];
  onZoom(since: number, until: number): void;
  /** Each series on top of the one before. */
  stacked?: boolean;
}

const HEIGHT = 170;

export function Chart(props: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const theme = shown.value;
  const kind = props.series.map((each) => each.name).join("\n");

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const made = new uPlot(optionsOf(latest, element.clientWidth), dataOf(props), element);
    plot.current = made;
    const resized = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    resized.observe(element);
    return () => {
      resized.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [theme, kind, props.stacked, times.value]);

  useEffect(() => {
    const its = plot.current;
    if (!its) return;
    its.batch(() => {
      its.setData(dataOf(props), false);
      its.setScale("x", { min: props.range[0] / 1000, max: props.range[1] / 1000 });
      // uPlot leaves the legend's values as they were where it is to leave the scales.
      its.setLegend({}, false);
    });
  });

  return (
    <figure class="chart">
      <figcaption>
        <Term of={props.figure} />
      </figcaption>
      <div ref={box} role="img" aria-label={described(props)} />
    </figure>
  );
}

function described({ figure, series, times, format }: Props): string {
  const last = series.map(({ name, values }) => {
    const known = values.filter((value) => value !== null);
    return known.length === 0 ? `${name} unknown` : `${name} ${format(known.at(-1) ?? null)}, at most ${format(Math.max(...known))}`;
  });
  return `${DEFINITIONS[figure].name}, ${times.length} points: ${last.join("; ")}`;
}

function dataOf({ times, series, stacked }: Props): uPlot.AlignedData {
  const values = series.map((each) => each.values);
  const columns = stacked ? stackedColumns(values) : values;
  return [times.map((time) => time / 1000), ...columns];
}

/** Sums from the first series on; the last, which covers all others, is drawn first. */
function stackedColumns(values: (number | null)[][]): (number | null)[][] {
  const sums: (number | null)[][] = [];
  values.forEach((column, index) => {
    const below = sums[index - 1];
    sums.push(column.map((value, at) => (value === null ? null : value + (below?.[at] ?? 0))));
  });
  return sums.reverse();
}

function optionsOf(latest: { current: Props }, width: number): uPlot.Options {
  const { series, stacked } = latest.current;
  const zone = times.value === "utc" ? "utc" : "local";
  const text = colour("muted");
  const grid = { stroke: colour("line"), width: 1 };
  const drawn = stacked ? [...series].reverse() : series;
  const original = (index: number) => (stacked ? series.length - index : index - 1);
  return {
    width: Math.max(width, 100),
    height: HEIGHT,
    tzDate: (seconds) => (zone === "utc" ? uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : new Date(seconds * 1000)),
    cursor: { sync: { key: "query" }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
    scales: { x: { time: true, auto: false }, y: { range: (_, __, top) => [0, top > 0 ? top * 1.18 : 1] /* the markers are above the peak */ } },
    axes: [
      {
        stroke: text,
        grid,
        ticks: grid,
        space: 70, // a time with seconds
        size: 32,
        values: (_, seconds) => seconds.map((each) => onAxis(each * 1000, zone)),
      },
      {
        stroke: text,
        grid,
        ticks: grid,
        size: 64,
        values: (_, values) => latest.current.axis(values),
        ...(latest.current.steps ? { incrs: latest.current.steps } : {}),
      },
    ],
    series: [
      {
        label: "Time",
        value: (_, seconds) => {
          const at = seconds == null ? (latest.current.times.at(-1) ?? 0) : seconds * 1000;
          return zone === "utc" ? utc(at) : local(at, Date.now());
        },
      },
      ...drawn.map((each, index) => ({
        label: each.name,
        stroke: colour(each.colour),
        width: stacked ? 0 : 1.75,
        dash: each.dash ?? [],
        fill: stacked ? colour(each.colour) : each.filled ? `${colour(each.colour)}22` : undefined,
        points: { show: !stacked && undefined, size: 4 },
        paths: stacked ? uPlot.paths.bars?.({ size: [1, Infinity], gap: 0 }) : undefined,
        value: (_: uPlot, __: number, ___: number, at: number | null) =>
          latest.current.format(latest.current.series[original(index + 1)]?.values.at(at ?? -1) ?? null),
      })),
    ],
    hooks: {
      draw: [(its) => drawMarkers(its, latest.current.markers)],
      setSelect: [
        (its) => {
          const { left, width: selected } = its.select;
          if (selected < 5) return;
          const since = its.posToVal(left, "x") * 1000;
          const until = its.posToVal(left + selected, "x") * 1000;
          its.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          latest.current.onZoom(Math.floor(since), Math.ceil(until));
        },
      ],
    },
  } as uPlot.Options;
}

function drawMarkers(its: uPlot, markers: Annotation[]): void {
  const { ctx, bbox } = its;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  ctx.textAlign = "center";
  for (const marker of markers) {
    const x = its.valToPos(marker.at / 1000, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = ctx.fillStyle = colour(marker.colour);
    ctx.lineWidth = ratio;
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top + 12 * ratio);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillText(marker.glyph, x, bbox.top + 10 * ratio);
  }
  ctx.restore();
}
