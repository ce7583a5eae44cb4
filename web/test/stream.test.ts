/** The client of the live stream, on a real connection to a server that answers as it is told. */

import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { test, type TestContext } from "node:test";
import { openStream, type StreamHandlers } from "../src/stream.ts";

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

/** What the handlers were told, in order; `until` waits for it. */
class Told implements StreamHandlers {
  readonly all: string[] = [];
  #changed: () => void = () => undefined;

  #add(text: string) {
    this.all.push(text);
    this.#changed();
  }
  snapshot = (documents: string[]) => this.#add(`snapshot ${documents.join(" ")}`);
  lag = (document: string) => this.#add(`lag ${document}`);
  forgotten = (queryId: string) => this.#add(`forgotten ${queryId}`);
  state = (state: { kind: string; reason?: string }) => this.#add(state.reason ? `${state.kind}: ${state.reason}` : state.kind);
  refused = (problem: Error) => this.#add(`refused ${problem.message}`);

  async until(text: string): Promise<void> {
    while (!this.all.includes(text)) await new Promise<void>((resolve) => (this.#changed = resolve));
  }
}

/** A server that gives each connection the next answer; the last goes on. */
async function reading(t: TestContext, answers: Answer[]): Promise<{ told: Told; lastIds: (string | undefined)[] }> {
  const lastIds: (string | undefined)[] = [];
  const server = createServer((request, response) => {
    lastIds.push(request.headers["last-event-id"] as string | undefined);
    (answers[Math.min(lastIds.length, answers.length) - 1] as Answer)(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  Object.assign(globalThis, { document: { baseURI: `http://127.0.0.1:${port}/` } });
  const told = new Told();
  const close = openStream("stream", {}, told);
  t.after(() => {
    close();
    server.closeAllConnections();
    server.close();
  });
  return { told, lastIds };
}

const sse = (text: string, end = false): Answer => (_, response) => {
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.write(`retry: 2000\n\n${text}`);
  if (end) response.end();
};

test("the opening replaces all, then each event comes by itself", { timeout: 60_000 }, async (t) => {
  const { told } = await reading(t, [sse('id: -\n\nevent: lag\ndata: a\n\nid: 0:2\nevent: lag\ndata: b\n\nevent: lag\ndata: c\n\nevent: forgotten\ndata: {"query_id":"q"}\n\n')]);
  await told.until("forgotten q");
  // What is read at once with the opening may be part of it: the newer one of a query comes later.
  assert.equal(told.all[0], "connecting");
  assert.match(told.all.join("|"), /snapshot a b( c)?\|live(\|lag c)?/);
});

test("a connection that ends is resumed from the last id", { timeout: 60_000 }, async (t) => {
  const { told, lastIds } = await reading(t, [
    sse("id: -\n\nid: 0:2\nevent: lag\ndata: a\n\n", true),
    sse("id: 0:3\nevent: lag\ndata: b\n\n"),
  ]);
  await told.until("lag b");
  assert.deepEqual(lastIds, [undefined, "0:2"]);
  assert.deepEqual(told.all, ["connecting", "snapshot a", "live", "down: the connection ended", "live", "lag b"]);
});

test("an opening that breaks off is no snapshot", { timeout: 60_000 }, async (t) => {
  const { told, lastIds } = await reading(t, [
    sse("id: -\n\nevent: lag\ndata: a\n\n", true),
    sse("id: -\n\nevent: lag\ndata: a\n\nid: 0:5\nevent: lag\ndata: b\n\n"),
  ]);
  await told.until("snapshot a b");
  assert.deepEqual(lastIds, [undefined, undefined]);
});

test("after a gap everything is read anew", { timeout: 60_000 }, async (t) => {
  const { told, lastIds } = await reading(t, [
    sse("id: -\n\nid: 0:2\nevent: lag\ndata: a\n\n", true),
    sse('event: gap\ndata: {"since":"0:2","reason":"gone"}\n\nid: 0:9\nevent: lag\ndata: b\n\n'),
    sse("id: -\n\nid: 0:9\nevent: lag\ndata: b\n\n"),
  ]);
  await told.until("snapshot b");
  assert.deepEqual(lastIds, [undefined, "0:2", undefined]);
});

test("a refusal is told with its reason, and tried again", { timeout: 60_000 }, async (t) => {
  const { told } = await reading(t, [
    (_, response) => response.writeHead(503, { "content-type": "application/problem+json" }).end('{"detail":"too many readers"}'),
    sse("id: -\n\nid: 0:2\nevent: lag\ndata: a\n\n"),
  ]);
  await told.until("snapshot a");
  assert.deepEqual(told.all.slice(0, 3), ["connecting", "refused too many readers", "down: too many readers"]);
});
