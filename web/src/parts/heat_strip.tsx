/** All partitions of a topic at a glance: the darker a cell, the larger its part of the lag. */

import { useEffect, useRef } from "preact/hooks";
import { records, unread } from "../format.ts";
import type { PartitionLag } from "../generated/rest.ts";
import { colour, shown } from "../theme.ts";

const CELL = 14;

interface Props {
  partitions: readonly PartitionLag[];
  chosen: number | null;
  onChoose(index: number): void;
}

export function HeatStrip({ partitions, chosen, onChoose }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = shown.value;
  useEffect(() => {
    const its = canvas.current;
    if (!its) return;
    const paint = () => draw(its, partitions, chosen);
    paint();
    const resized = new ResizeObserver(paint);
    resized.observe(its.parentElement ?? its);
    return () => resized.disconnect();
  }, [partitions, chosen, theme]);
  return (
    <div class="heat">
      <canvas
        ref={canvas}
        role="img"
        aria-label={described(partitions)}
        onClick={(event) => onChoose(indexAt(event, partitions.length))}
        onMouseMove={(event) => {
          const partition = partitions[indexAt(event, partitions.length)];
          event.currentTarget.title = partition ? `partition ${partition.partition}: ${records(unread(partition))} records` : "";
        }}
      />
    </div>
  );
}

function described(partitions: readonly PartitionLag[]): string {
  const lags = partitions.map((partition) => unread(partition) ?? 0).sort((a, b) => b - a);
  const worst = partitions.reduce<PartitionLag | null>((a, b) => (a === null || (unread(b) ?? -1) > (unread(a) ?? -1) ? b : a), null);
  const total = lags.reduce((a, b) => a + b, 0);
  if (worst === null || total === 0) return `${partitions.length} partitions without lag`;
  const share = Math.round((100 * (unread(worst) ?? 0)) / total);
  return `${partitions.length} partitions: partition ${worst.partition} has ${share} % of the lag, ${records(unread(worst))} records; the median is ${records(lags[Math.floor(lags.length / 2)])}`;
}

function columnsOf(width: number, count: number): number {
  return Math.max(1, Math.min(count, Math.floor(width / CELL)));
}

function indexAt(event: MouseEvent, count: number): number {
  const its = event.currentTarget as HTMLCanvasElement;
  const columns = columnsOf(its.clientWidth, count);
  return Math.floor(event.offsetY / CELL) * columns + Math.floor(event.offsetX / CELL);
}

function draw(its: HTMLCanvasElement, partitions: readonly PartitionLag[], chosen: number | null): void {
  const width = its.parentElement?.clientWidth ?? 300;
  const columns = columnsOf(width, partitions.length);
  const height = Math.ceil(partitions.length / columns) * CELL;
  its.width = width * devicePixelRatio;
  its.height = height * devicePixelRatio;
  its.style.width = `${width}px`;
  its.style.height = `${height}px`;
  const ctx = its.getContext("2d");
  if (!ctx) return;
  ctx.scale(devicePixelRatio, devicePixelRatio);
  const highest = partitions.reduce((top, partition) => Math.max(top, unread(partition) ?? 0), 0);
  const [low, high, unknown, mark] = [colour("heat-low"), colour("heat-high"), colour("bad"), colour("text")];
  partitions.forEach((partition, index) => {
    const x = (index % columns) * CELL;
    const y = Math.floor(index / columns) * CELL;
    ctx.globalAlpha = 1;
    ctx.fillStyle = low;
    ctx.fillRect(x, y, CELL - 1, CELL - 1);
    const lag = unread(partition);
    if (lag === null) {
      // A cross, and no colour of the scale: its lag is not known.
      ctx.strokeStyle = unknown;
      ctx.beginPath();
      ctx.moveTo(x + 3, y + 3);
      ctx.lineTo(x + CELL - 4, y + CELL - 4);
      ctx.moveTo(x + CELL - 4, y + 3);
      ctx.lineTo(x + 3, y + CELL - 4);
      ctx.stroke();
    } else if (highest > 0) {
      ctx.globalAlpha = lag / highest;
      ctx.fillStyle = high;
      ctx.fillRect(x, y, CELL - 1, CELL - 1);
    }
    if (index === chosen) {
      ctx.globalAlpha = 1;
      ctx.strokeStyle = mark;
      ctx.lineWidth = 2;
      ctx.strokeRect(x + 1, y + 1, CELL - 3, CELL - 3);
    }
  });
}
