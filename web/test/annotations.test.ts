import assert from "node:assert/strict";
import { test } from "node:test";
import type { HistoryPoint } from "../src/generated/rest.ts";
import { annotations } from "../src/annotations.ts";

function point(at: number, statuses: string[], started = false): HistoryPoint {
  return { at, statuses, started } as HistoryPoint;
}

test("a status that lasts is one event", () => {
  const annotated = annotations([point(1, ["OK", "FAILED"]), point(2, ["FAILED"]), point(3, ["FAILED"])]);
  assert.deepEqual(annotated.map(({ at, text }) => [at, text]), [[1, "failed"]]);
});

test("a status that comes back is another event", () => {
  const annotated = annotations([point(1, ["STALL"]), point(2, ["OK"]), point(3, ["STALL"])]);
  assert.deepEqual(annotated.map(({ at }) => at), [1, 3]);
});

test("a start is one that comes again after the first step", () => {
  const annotated = annotations([point(1, ["OK"], true), point(2, ["OK"]), point(3, ["FAILED", "OK"], true)]);
  assert.deepEqual(annotated.map(({ text }) => text), ["started", "started again", "failed"]);
});

test("an unknown status and a healthy one are none", () => {
  assert.deepEqual(annotations([point(1, ["OK", "WARN", "NEW_WORD"])]), []);
});
