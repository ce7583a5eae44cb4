/** The live stream of lag events: Server-Sent Events by fetch, which can resume by any id. */

import { createParser } from "eventsource-parser";
import { get, Problem, type Params } from "./api.ts";

/** What a page is told of its stream. */
export type StreamState =
  | { kind: "connecting" }
  | { kind: "live" }
  /** The service answers, and has nothing for this stream yet. */
  | { kind: "waiting" }
  | { kind: "down"; since: number; reason: string };

export interface StreamHandlers {
  /** The newest event of every query, in place of all that came before. */
  snapshot(documents: string[]): void;
  lag(document: string): void;
  forgotten(queryId: string): void;
  state(state: StreamState): void;
  /** The service has no such stream, or none for now. */
  refused?(problem: Problem): void;
}

const SILENT_MS = 45_000; // the service sends a comment every 15 s
const FIRST_RETRY_MS = 500;
const MAX_RETRY_MS = 8_000;

/** Read the stream at a path until the function that is returned is called. It reconnects by itself. */
export function openStream(path: string, params: Params, handlers: StreamHandlers): () => void {
  const closed = new AbortController();
  void readForever(path, params, handlers, closed.signal);
  return () => closed.abort();
}

/** Where a reader is in the stream: what the next request resumes from. */
interface Cursor {
  lastId: string | null;
  isLive: boolean;
}

class Gap extends Error {}

async function readForever(path: string, params: Params, handlers: StreamHandlers, closed: AbortSignal): Promise<void> {
  const cursor: Cursor = { lastId: null, isLive: false };
  let retryMs = FIRST_RETRY_MS;
  let downSince: number | null = null;
  handlers.state({ kind: "connecting" });
  while (!closed.aborted) {
    let reason = "the connection ended";
    let isGap = false;
    let isWaiting = false;
    try {
      await readOnce(path, params, cursor, handlers, closed);
    } catch (error) {
      isGap = error instanceof Gap;
      if (error instanceof Problem) handlers.refused?.(error);
      isWaiting = error instanceof Problem && (error.status === 404 || error.status === 409);
      reason = error instanceof Error ? error.message : String(error);
    }
    if (closed.aborted) return;
    if (cursor.isLive) {
      retryMs = FIRST_RETRY_MS;
      downSince = null;
    }
    cursor.isLive = false;
    if (isGap) {
      cursor.lastId = null;
      continue;
    }
    downSince ??= Date.now();
    handlers.state(isWaiting ? { kind: "waiting" } : { kind: "down", since: downSince, reason });
    await pause(retryMs * (0.75 + Math.random() / 2), closed);
    retryMs = Math.min(retryMs * 2, MAX_RETRY_MS);
  }
}

/** One connection, until it ends. Throws what ended it: Problem, TypeError, Gap, TimeoutError. */
async function readOnce(
  path: string,
  params: Params,
  cursor: Cursor,
  handlers: StreamHandlers,
  closed: AbortSignal,
): Promise<void> {
  const ended = new AbortController();
  const end = () => ended.abort();
  closed.addEventListener("abort", end);
  let watchdog = setTimeout(end, SILENT_MS);
  try {
    const headers: Record<string, string> = { accept: "text/event-stream" };
    if (cursor.lastId !== null) headers["last-event-id"] = cursor.lastId;
    const response = await get(path, params, { headers, cache: "no-store", signal: ended.signal });
    if (response.body === null) return;

    // A new reader gets an id that stands for nothing, then every query; the last one has an id.
    let opening: string[] | null = cursor.lastId === null ? [] : null;
    let ids = 0;
    const live = () => {
      if (cursor.isLive) return;
      cursor.isLive = true;
      handlers.state({ kind: "live" });
    };
    if (opening === null) live();
    const parser = createParser({
      onId(id) {
        ids += 1;
        if (opening !== null && ids < 2) return;
        cursor.lastId = id;
      },
      onEvent({ event, data }) {
        if (event === "gap") throw new Gap("events are missing");
        if (event === "forgotten") handlers.forgotten((JSON.parse(data) as { query_id: string }).query_id);
        else if (event !== "lag") return;
        else if (opening === null) handlers.lag(data);
        else opening.push(data);
      },
    });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(watchdog);
      watchdog = setTimeout(end, SILENT_MS);
      parser.feed(value);
      if (opening !== null && ids >= 2) {
        handlers.snapshot(opening);
        opening = null;
        live();
      }
    }
  } catch (error) {
    if (ended.signal.aborted && !closed.aborted) throw new Error(`nothing came for ${SILENT_MS / 1000} s`);
    throw error;
  } finally {
    clearTimeout(watchdog);
    closed.removeEventListener("abort", end);
    ended.abort();
  }
}

function pause(ms: number, closed: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    closed.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
