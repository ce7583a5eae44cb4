import assert from "node:assert/strict";
import { test } from "node:test";
import { filtersOf, matches, sections, sorted, sortOf } from "../src/filters.ts";
import type { LagSummary } from "../src/generated/rest.ts";
import { sharedNames } from "../src/status.ts";

function summary(query_id: string, rest: Partial<LagSummary> = {}): LagSummary {
  return { query_id, query: query_id, status: "OK", topics: ["orders"], cluster: "default", ...rest } as LagSummary;
}

const ids = (events: LagSummary[]) => events.map((event) => event.query_id);

test("the worst comes first: by urgency, then age, then lag", () => {
  const events = [
    summary("healthy", { total_lag: 1_000_000, max_time_lag_s: 900 }),
    summary("slow", { status: "WARN", total_lag: 5 }),
    summary("stalled", { status: "STALL", max_time_lag_s: 60 }),
    summary("dead", { status: "STOP", max_time_lag_s: 600 }),
    summary("of the future", { status: "NEW_WORD", total_lag: 9 }),
  ];
  assert.deepEqual(ids(sorted(events, sortOf(new URLSearchParams()))), ["dead", "stalled", "of the future", "slow", "healthy"]);
});

test("what is not known comes last in both directions", () => {
  const events = [summary("unknown", { total_lag: null }), summary("low", { total_lag: 0 }), summary("high", { total_lag: 7 })];
  assert.deepEqual(ids(sorted(events, { key: "lag", descending: true })), ["high", "low", "unknown"]);
  assert.deepEqual(ids(sorted(events, { key: "lag", descending: false })), ["low", "high", "unknown"]);
});

test("an address with a wrong sort is one without", () => {
  assert.deepEqual(sortOf(new URLSearchParams("sort=toString:asc")), { key: "severity", descending: false });
  assert.deepEqual(sortOf(new URLSearchParams("sort=lag")), { key: "lag", descending: true });
});

test("every filter has to fit, the text in any case and anywhere", () => {
  const event = summary("Billing", { status: "STALL", topics: ["payments"], cluster: "east", reason: "no Batch for 5 min" });
  const fits = (search: string) => matches(event, filtersOf(new URLSearchParams(search)));
  assert.ok(fits("filter=BILL&status=stall&topic=payments&cluster=east"));
  assert.ok(fits("filter=batch"));
  for (const search of ["filter=x", "status=OK", "topic=pay", "cluster=west"]) assert.ok(!fits(search), search);
});

test("groups are apart from queries, and queries by application where that is chosen", () => {
  const events = [summary("a", { application: "app-1" }), summary("g", { origin: "group" }), summary("b", { application: "app-2" }), summary("c", { application: "app-1" })];
  assert.deepEqual(sections(events, false), [{ heading: "Spark queries", count: 3 }, "a", "b", "c", { heading: "Consumer groups", count: 1 }, "g"]);
  assert.deepEqual(sections(events, true), [
    { heading: "Application app-1", count: 2 }, "a", "c", { heading: "Application app-2", count: 1 }, "b", { heading: "Consumer groups", count: 1 }, "g",
  ]);
  assert.deepEqual(sections(events.slice(0, 1), false), ["a"]);
});

test("a name is shared where two queries have it, and queries without a name share none", () => {
  assert.deepEqual([...sharedNames([{ query: "a" }, { query: "b" }, { query: "a" }, { query: null }, { query: null }])], ["a"]);
});
