import assert from "node:assert/strict";
import { test } from "node:test";
import { annotations } from "../src/annotations.ts";
import type { HistoryChange } from "../src/generated/rest.ts";

function texts(...changes: [HistoryChange["status"], HistoryChange["before"]][]): string[] {
  return annotations(changes.map(([status, before], at) => ({ at, status, before }))).map(({ text }) => text);
}

test("a change is said in words, and a recovery by what it ends", () => {
  assert.deepEqual(texts(["STALL", "OK"], ["OK", "STALL"], ["WARN", "OK"]), ["stalled", "recovered from STALL", "warned"]);
});

test("a start after a status is another start", () => {
  assert.deepEqual(texts([null, null], [null, "FAILED"]), ["started", "started again"]);
});

test("the first status is no event where all is well", () => {
  assert.deepEqual(texts(["OK", null], ["NEW_WORD" as "OK", "OK"]), ["became NEW_WORD"]);
});
