import assert from "node:assert/strict";
import { test } from "node:test";
import type { LagEvent } from "../src/generated/rest.ts";
import { startingOffsets } from "../src/starting_offsets.ts";

test("each source is a line of topics and partitions, without those that are not known", () => {
  const event = {
    topics: [
      { source: 1, topic: "b", partitions: [{ partition: 0, processed_offset: 7 }] },
      { source: 0, topic: "a", partitions: [{ partition: 0, processed_offset: 5 }, { partition: 1, processed_offset: null }] },
      { source: 0, topic: "c", partitions: [{ partition: 3, processed_offset: 0 }] },
    ],
  } as unknown as LagEvent;
  assert.equal(startingOffsets(event), '{"a":{"0":5},"c":{"3":0}}\n{"b":{"0":7}}');
});
