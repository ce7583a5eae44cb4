import assert from "node:assert/strict";
import { test } from "node:test";
import { counts, spanTicks } from "../src/format.ts";

test("the ticks of an axis have one unit", () => {
  assert.deepEqual(spanTicks([0, 60, 120, 180]), ["0", "1 min", "2 min", "3 min"]);
  assert.deepEqual(spanTicks([0, 50, 100]), ["0", "50 s", "100 s"]);
  assert.deepEqual(spanTicks([0, 0.02, 0.04]), ["0", "20 ms", "40 ms"]);
  assert.deepEqual(counts([0, 500_000, 1_000_000]), ["0", "0.5M", "1M"]);
  assert.deepEqual(counts([0, 1, 2]), ["0", "1", "2"]);
});
