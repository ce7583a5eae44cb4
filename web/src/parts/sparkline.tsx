/** A line as small as a word. */

import { records, UNKNOWN } from "../format.ts";
import type { Trend } from "../trends.ts";

const WIDTH = 90;
const HEIGHT = 22;

/** Where a value is not known the line is broken. */
export function Sparkline({ values, label }: { values: Trend; label: string }) {
  const known = values.filter((value) => value !== null);
  const top = Math.max(1, ...known);
  const step = WIDTH / Math.max(1, values.length - 1);
  let path = "";
  let pen = false;
  values.forEach((value, index) => {
    if (value === null) {
      pen = false;
      return;
    }
    const x = (index * step).toFixed(1);
    const y = (HEIGHT - 2 - (value / top) * (HEIGHT - 4)).toFixed(1);
    // A value between two unknown ones is a dot.
    path += pen ? `L${x} ${y}` : `M${x} ${y}h.1`;
    pen = true;
  });
  const text = known.length === 0 ? UNKNOWN : `from ${records(known[0])} to ${records(known.at(-1))}, at most ${records(Math.max(...known))}`;
  return (
    <svg class="sparkline" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={`${label}: ${text}`}>
      <title>{`${label}: ${text}`}</title>
      <path d={path} />
    </svg>
  );
}
