/** `/q/{query}`: one query, over time and by partition. */

import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { address, getJson, principalName, Problem, segment } from "../api.ts";
import { now } from "../clock.ts";
import { printable } from "../format.ts";
import type { HistoryPage, LagEvent } from "../generated/rest.ts";
import { CopyButton } from "../parts/copy_button.tsx";
import { Header } from "../parts/header.tsx";
import { HistoryCharts } from "../parts/history_charts.tsx";
import { Partitions } from "../parts/partitions.tsx";
import { Age, Figure, Foreign, Moment, StatusMark } from "../parts/text.tsx";
import { fleetHref, place, queryHref, setParams, topicHref } from "../router.ts";
import { startingOffsets } from "../starting_offsets.ts";
import { displayName } from "../status.ts";
import { openStream, type StreamState } from "../stream.ts";

const RANGES = ["15m", "1h", "6h", "24h"];
const RELOAD_MS = 15_000; // the finest step of the history

interface Explanation {
  status: string;
  lines: { heading: string; text: string }[];
}

interface Live {
  event: LagEvent | null;
  receivedAt: number | null;
  state: StreamState;
  problem: Problem | null;
}

export function QueryPage({ query }: { query: string }) {
  const live = useLive(query);
  const { event, problem } = live.value;
  return (
    <>
      <Header state={live.value.state} receivedAt={live.value.receivedAt} />
      <main id="main" tabIndex={-1}>
        <p class="trail">
          <a href={fleetHref()}>Streaming queries</a>
        </p>
        {event ? <Query event={event} /> : problem ? <Missing query={query} problem={problem} /> : <p class="empty">Reading the query …</p>}
      </main>
    </>
  );
}

/** The newest event, as it comes. */
function useLive(query: string) {
  const live = useSignal<Live>({ event: null, receivedAt: null, state: { kind: "connecting" }, problem: null });
  useEffect(() => {
    const change = (changes: Partial<Live>) => (live.value = { ...live.value, ...changes });
    const receive = (document: string) => change({ event: JSON.parse(document) as LagEvent, receivedAt: Date.now(), problem: null });
    const close = openStream(`lag/${segment(query)}/stream`, {}, {
      snapshot: (documents) => documents.forEach(receive),
      lag: receive,
      forgotten: () => change({ event: null, problem: new Problem(404, "the query was forgotten") }),
      state: (state) => change({ state }),
      refused: (problem) => change({ problem }),
    });
    return close;
  }, [query]);
  return live;
}

function Missing({ query, problem }: { query: string; problem: Problem }) {
  return (
    <section class="empty">
      <h1>
        <Foreign text={query} />
      </h1>
      <p role="alert">{printable(problem.message)}</p>
      {problem.queryIds.length > 0 && (
        <ul>
          {problem.queryIds.map((id) => (
            <li key={id}>
              <a href={queryHref(id)}>{printable(id)}</a>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Query({ event }: { event: LagEvent }) {
  const explanation = useExplanation(event);
  const topics = [...new Set(event.topics.map((topic) => topic.topic))];
  useEffect(() => {
    document.title = `${printable(displayName(event))} · sparklag`;
  }, [event.query, event.query_id]);
  return (
    <>
      <h1>
        <Foreign text={displayName(event)} />
      </h1>
      <p class="sentence">
        <StatusMark status={event.status} />
        {event.status_since != null && event.status !== "OK" && (
          <>
            {" "}
            since <Moment at={event.status_since} />
          </>
        )}
        {event.reason && (
          <>
            : <Foreign text={event.reason} />
          </>
        )}
      </p>
      {event.exception && <pre class="exception">{printable(event.exception)}</pre>}
      <dl class="explanation" aria-label="Explanation">
        {explanation?.lines.map(({ heading, text }) => (
          <div key={heading}>
            <dt>{heading}</dt>
            <dd>{printable(text)}</dd>
          </div>
        ))}
      </dl>
      <div class="actions">
        <CopyButton name="Copy startingOffsets" text={() => startingOffsets(event)} />
        <CopyButton name="Copy curl" text={() => curl(event)} />
        <span>
          {topics.length === 1 ? "Topic " : "Topics "}
          {topics.map((topic, index) => (
            <span key={topic}>
              {index > 0 && ", "}
              <a href={topicHref(topic)}>{printable(topic)}</a>
            </span>
          ))}
        </span>
      </div>
      <History event={event} />
      <Partitions event={event} />
      <dl class="figures" aria-label="Identity">
        <Figure name="Query id">
          <code>{printable(event.query_id)}</code>
        </Figure>
        {event.run_id && (
          <Figure name="Run id">
            <code>{printable(event.run_id)}</code>
          </Figure>
        )}
        <Figure name="Cluster">{printable(event.cluster ?? "default")}</Figure>
        {event.checkpoint_location && (
          <Figure name="Checkpoint">
            <code>{printable(event.checkpoint_location)}</code>
          </Figure>
        )}
        <Figure name="Position reported by">{printable(event.origin ?? "listener")}</Figure>
        <Figure name="Measured">
          <Age at={event.measured_at} />
        </Figure>
      </dl>
    </>
  );
}

/** What the terminal says too: how far behind, how fast, why. */
function useExplanation(event: LagEvent): Explanation | null {
  const explanation = useSignal<Explanation | null>(null);
  const second = Math.floor(event.measured_at / 2_000); // rises no faster than it can be read
  useEffect(() => {
    const left = new AbortController();
    getJson<Explanation>(`lag/${segment(event.query_id)}/explanation`, {}, left.signal).then(
      (document) => (explanation.value = document),
      () => undefined, // the next event asks again
    );
    return () => left.abort();
  }, [event.query_id, second]);
  return explanation.value;
}

/** The range of time in the address: until now, or between two moments. */
function rangeOf(params: URLSearchParams): { since: string; until: string | null } {
  const until = params.get("until");
  return { since: params.get("since") ?? "1h", until: until && /^\d+$/.test(until) ? until : null };
}

function History({ event }: { event: LagEvent }) {
  const { since, until } = rangeOf(place.value.params);
  const page = useSignal<HistoryPage | null>(null);
  const failure = useSignal<string | null>(null);
  const retry = useSignal(0);
  const reload = until === null ? Math.floor(now.value / RELOAD_MS) : 0;
  useEffect(() => {
    const left = new AbortController();
    getJson<HistoryPage>(`lag/${segment(event.query_id)}/history`, { since, until }, left.signal).then(
      (document) => {
        page.value = document;
        failure.value = null;
      },
      (error: Error) => {
        if (!left.signal.aborted) failure.value = error.message;
      },
    );
    return () => left.abort();
  }, [event.query_id, since, until, reload, retry.value]);
  const zoom = useMemo(() => (from: number, to: number) => setParams({ since: String(from), until: String(to) }), []);
  return (
    <section aria-label="History">
      <div class="ranges" role="group" aria-label="Time range">
        {RANGES.map((range) => (
          <button type="button" key={range} aria-pressed={until === null && since === range} onClick={() => setParams({ since: range, until: null })}>
            {range}
          </button>
        ))}
        {until !== null && (
          <>
            <span>
              <Moment at={Number(since)} /> to <Moment at={Number(until)} />
            </span>
            <button type="button" onClick={() => setParams({ since: null, until: null })}>
              Back to now
            </button>
          </>
        )}
        <small>Drag over a chart to zoom.</small>
      </div>
      {failure.value && (
        <p role="alert">
          There is no history: {printable(failure.value)} <button type="button" onClick={() => (retry.value += 1)}>Try again</button>
        </p>
      )}
      {page.value && <HistoryCharts page={page.value} newest={until === null ? event : null} onZoom={zoom} />}
    </section>
  );
}

/** The request for what is shown. */
function curl(event: LagEvent): string {
  const { since, until } = rangeOf(place.value.params);
  const path = `lag/${segment(event.query_id)}`;
  const token = principalName() === null ? "" : '-H "Authorization: Bearer $SPARKLAG_TOKEN" ';
  const quoted = (href: string) => `curl -s ${token}'${href.replaceAll("'", "%27")}'`;
  return `${quoted(address(path))}\n${quoted(address(`${path}/history`, { since, until }))}`;
}
