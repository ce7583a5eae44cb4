/**
 * Values of events as text for people; an unknown one is "unknown", not 0. The same text as the
 * terminal's: a test holds it to `sparklag_schemas/formatting.py`.
 */

export const UNKNOWN = "unknown";

// A tie goes to the even digit, as in Python.
const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0, roundingMode: "halfEven" });
const tenths = new Intl.NumberFormat("en-US", {
  minimumFractionDigits: 1, maximumFractionDigits: 1, roundingMode: "halfEven",
});

/** A duration in seconds, in the unit that fits. */
export function span(seconds: number): string {
  if (seconds < 10) return `${tenths.format(seconds)} s`;
  if (seconds < 120) return `${whole.format(seconds)} s`;
  if (seconds < 7_200) return `${whole.format(seconds / 60)} min`;
  if (seconds < 172_800) return `${tenths.format(seconds / 3_600)} h`;
  return `${tenths.format(seconds / 86_400)} days`;
}

export function records(lag: number | null | undefined): string {
  return lag == null ? UNKNOWN : whole.format(lag);
}

/** The records of a partition that are left to read. */
export function unread(partition: { lag?: number | null; readable_lag?: number | null }): number | null {
  return partition.readable_lag ?? partition.lag ?? null;
}

/** The age of a query's first unprocessed record, if there is one. */
export function timeLag(lag: number | null | undefined, ageS: number | null | undefined): string {
  if (lag === 0) return "";
  return ageS == null ? UNKNOWN : span(ageS);
}

/** How long ago, in the unit that fits. */
export function ago(sinceMs: number | null | undefined, nowMs: number): string {
  if (sinceMs == null) return "never";
  const seconds = Math.max(0, (nowMs - sinceMs) / 1000);
  if (seconds < 120) return `${whole.format(seconds)} s ago`;
  return seconds < 7_200 ? `${whole.format(seconds / 60)} min ago` : `${whole.format(seconds / 3_600)} h ago`;
}

/** With one decimal below 100. */
export function number(value: number): string {
  return Math.abs(value) < 100 ? tenths.format(value) : whole.format(value);
}

export function perSecond(rate: number | null | undefined): string {
  return rate == null ? UNKNOWN : `${number(rate)}/s`;
}

/** The change of a lag per second, with its sign. */
export function trend(rate: number | null | undefined): string {
  if (rate == null) return UNKNOWN;
  return Math.abs(rate) < 0.05 ? "steady" : `${rate > 0 ? "+" : "-"}${number(Math.abs(rate))}/s`;
}

/** Until the lag is gone; `reason` is the event's `catch_up_reason`. */
export function catchUp(seconds: number | null | undefined, reason: string | null | undefined): string {
  if (seconds != null) return seconds > 0 ? span(seconds) : "";
  if (reason?.startsWith("overdue")) return "overdue";
  if (reason === "the query is not running") return "not running";
  const atTheseRates = reason != null && /^(never at these rates|it keeps pace but does not catch up)/.test(reason);
  return atTheseRates ? "never" : UNKNOWN;
}

const units: [number, string][] = [
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

/** The ticks of an axis in the unit of the largest: `0.5M`, `1M`. */
export function counts(ticks: readonly number[]): string[] {
  const [unit, name] = units.find(([unit]) => unit <= Math.max(...ticks)) ?? [1, ""];
  return ticks.map((tick) => `${Number((tick / unit).toPrecision(4))}${tick === 0 ? "" : name}`);
}

const spans: [number, string][] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
];

/** The ticks of an axis of seconds, in the unit of the largest: `2 min`, `4 min`. */
export function spanTicks(ticks: readonly number[]): string[] {
  const largest = Math.max(...ticks);
  const [unit, name] = spans.find(([unit]) => 2 * unit <= largest) ?? (largest < 0.1 ? [1e-3, "ms"] : [1, "s"]);
  return ticks.map((tick) => (tick === 0 ? "0" : `${Number((tick / unit).toPrecision(4))} ${name}`));
}

/** Steps between the ticks of an axis of seconds that are whole in each unit. */
export const SPAN_STEPS = [
  ...[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30],
  ...[60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200],
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000].map((days) => days * 86_400),
];

const ESCAPED: Record<string, string> = { "\t": "\\t", "\n": "\\n", "\r": "\\r" };

/**
 * Foreign text on one line: what cannot be seen, and what changes the order of what can (control
 * characters, line ends, bidirectional marks, half surrogates), is escaped.
 */
export function printable(text: string): string {
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu, (character) => {
    const code = character.codePointAt(0) ?? 0;
    const hex = code.toString(16);
    if (code > 0xffff) return `\\U${hex.padStart(8, "0")}`;
    return ESCAPED[character] ?? (code > 0xff ? `\\u${hex.padStart(4, "0")}` : `\\x${hex.padStart(2, "0")}`);
  });
}

/** The time in UTC, for those who compare logs. */
export function utc(atMs: number): string {
  return `${new Date(atMs).toISOString().replace("T", " ").slice(0, 19)} UTC`;
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const dated = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});

/** The time in the reader's zone; with the date where that is not within a day of now. */
export function local(atMs: number, nowMs: number): string {
  return (Math.abs(nowMs - atMs) < 86_400_000 ? clock : dated).format(atMs);
}

const minute = formats({ hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const second = formats({ hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const day = formats({ month: "short", day: "numeric" });

function formats(options: Intl.DateTimeFormatOptions): Record<"local" | "utc", Intl.DateTimeFormat> {
  return { local: new Intl.DateTimeFormat(undefined, options), utc: new Intl.DateTimeFormat(undefined, { ...options, timeZone: "UTC" }) };
}

/** The time on an axis: at midnight the day. */
export function onAxis(atMs: number, zone: "local" | "utc"): string {
  const ofDay = zone === "utc" ? atMs : atMs - new Date(atMs).getTimezoneOffset() * 60_000;
  return (ofDay % 86_400_000 === 0 ? day : ofDay % 60_000 === 0 ? minute : second)[zone].format(atMs);
}
