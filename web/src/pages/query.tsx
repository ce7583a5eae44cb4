/** `/q/{query}`: one query, over time and by partition. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { address, getJson, pageMeta, Problem, segment } from "../api.ts";
import { now } from "../clock.ts";
import { printable } from "../format.ts";
import type { HistoryPage, LagEvent } from "../generated/rest.ts";
import { useKeys } from "../keys.ts";
import { CopyButton } from "../parts/copy_button.tsx";
import { ForgetButton } from "../parts/forget.tsx";
import { Header } from "../parts/header.tsx";
import { HistoryCharts } from "../parts/history_charts.tsx";
import { Partitions } from "../parts/partitions.tsx";
import { Age, Figure, Foreign, Moment, StatusMark, TopicLinks } from "../parts/text.tsx";
import { fleetHref, goBack, place, queryHref, setParams, useTitle } from "../router.ts";
import { startingOffsets } from "../starting_offsets.ts";
import { displayName, isDead } from "../status.ts";
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
  useKeys({ Escape: goBack });
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
  useTitle(printable(query));
  const { status, queryIds, alike } = problem;
  return (
    <section class="empty">
      <h1>
        {status === 404 ? "No such query: " : ""}
        <Foreign text={query} />
      </h1>
      <p role="alert">{printable(problem.message)}</p>
      {alike.length > 0 && <h2>Names like it</h2>}
      <ul>
        {queryIds.map((id) => (
          <Named key={id} id={id} />
        ))}
        {alike.map((name) => (
          <li key={name}>
            <a href={queryHref(name)}>
              <Foreign text={name} />
            </a>
          </li>
        ))}
      </ul>
      {status === 404 && (
        <p>
          This page shows the query once it is observed. <a href={fleetHref()}>All queries</a>
        </p>
      )}
    </section>
  );
}

/** One of several queries of a name. */
function Named({ id }: { id: string }) {
  const event = useSignal<LagEvent | null>(null);
  useEffect(() => {
    getJson<LagEvent>(`lag/${segment(id)}`).then((its) => (event.value = its), () => undefined);
  }, [id]);
  return (
    <li>
      <a href={queryHref(id)}>{printable(id)}</a>{" "}
      {event.value && (
        <>
          <StatusMark status={event.value.status} /> {event.value.application && <Foreign text={`in ${event.value.application}`} />}
        </>
      )}
    </li>
  );
}

function Query({ event }: { event: LagEvent }) {
  const explanation = useExplanation(event);
  const topics = [...new Set(event.topics.map((topic) => topic.topic))];
  useTitle(printable(displayName(event)));
  return (
    <>
      <h1 class="name">
        <Foreign text={displayName(event)} />
      </h1>
      <p class="identity">
        {event.origin === "group" ? "consumer group" : <code>{printable(event.query_id.slice(0, 8))}</code>}
        {event.application && <Foreign text={`in ${event.application}`} />}
        <span>
          reads <TopicLinks topics={topics} most={5} />
        </span>
        {event.cluster !== "default" && <span>on {printable(event.cluster ?? "")}</span>}
      </p>
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
        <Links event={event} />
        <CopyButton name="Copy link" text={() => linkToShown()} />
        <CopyButton name="Copy startingOffsets" text={() => startingOffsets(event)} />
        <CopyButton name="Copy curl" text={() => curl(event)} />
        <ForgetButton queries={isDead(event) ? [event] : []} name="Forget" />
      </div>
      <History event={event} />
      <Partitions event={event} />
      <dl class="figures" aria-label="Identity">
        <Figure of={{ name: "Query id" }}>
          <code>{printable(event.query_id)}</code>
        </Figure>
        {event.run_id && (
          <Figure of={{ name: "Run id" }}>
            <code>{printable(event.run_id)}</code>
          </Figure>
        )}
        <Figure of={{ name: "Cluster" }}>{printable(event.cluster ?? "default")}</Figure>
        {event.checkpoint_location && (
          <Figure of={{ name: "Checkpoint" }}>
            <code>{printable(event.checkpoint_location)}</code>
          </Figure>
        )}
        <Figure of={{ name: "Position reported by" }}>{printable(event.origin ?? "listener")}</Figure>
        <Figure of="last_measured">
          <Age at={event.measured_at} /> {event.instance && <Foreign text={`by ${event.instance}`} />}
        </Figure>
      </dl>
    </>
  );
}

/** Where else the query is shown: in Spark's UI, with its batches, and in Grafana. */
function Links({ event }: { event: LagEvent }) {
  const grafana = pageMeta("grafana");
  const { spark_ui_url: ui, run_id } = event;
  return (
    <>
      {ui && run_id && !isDead(event) && (
        <a class="button" target="_blank" rel="noreferrer" href={`${ui.replace(/\/$/, "")}/StreamingQuery/statistics/?id=${segment(run_id)}`}>
          Spark UI
        </a>
      )}
      {grafana && (
        <a class="button" target="_blank" rel="noreferrer" href={`${grafana.replace(/\/$/, "")}/d/sparklag-query?var-query=${segment(displayName(event))}`}>
          Grafana
        </a>
      )}
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

/** Epoch milliseconds that a Date can have. */
const MOMENT = /^\d{1,15}$/;

/** The range of time in the address: until now, or between two moments. */
function rangeOf(params: URLSearchParams): { since: string; until: string | null } {
  const [since, until] = [params.get("since") ?? "1h", params.get("until")];
  return { since, until: until && MOMENT.test(until) && MOMENT.test(since) ? until : null };
}

/** The same range as two moments. */
function momentsOf(params: URLSearchParams): [since: number, until: number] {
  const { since, until } = rangeOf(params);
  const end = until === null ? Date.now() : Number(until);
  const length = /^(\d+)([mhd])$/.exec(since);
  const start = length ? end - Number(length[1]) * UNITS_MS[length[2] as keyof typeof UNITS_MS] : Number(since);
  return [Number.isFinite(start) ? start : end - UNITS_MS.h, end];
}

const UNITS_MS = { m: 60_000, h: 3_600_000, d: 86_400_000 };
const SHORTEST_MS = 60_000;

function show(since: number, until: number): void {
  setParams({ since: String(Math.floor(since)), until: String(Math.ceil(until)) });
}

/** A part of a range, or more than it: `from` and `to` of its length, from its start. */
function zoom(from: number, to: number, [since, until] = momentsOf(place.value.params)): void {
  const length = until - since;
  const end = Math.min(since + to * length, Date.now());
  show(Math.max(0, Math.min(since + from * length, end - SHORTEST_MS)), end);
}

/** The middle of the range; where it ends now, the last half of what is known. */
function zoomIn(knownSince: number): void {
  const [since, until] = momentsOf(place.value.params);
  if (place.value.params.has("until")) zoom(0.25, 0.75);
  else zoom(0.5, 1, [Math.max(since, knownSince), until]);
}

const ZOOMS: { key: string; name: string; glyph: string; run(knownSince: number): void }[] = [
  { key: "+", name: "Zoom in", glyph: "+", run: zoomIn },
  { key: "-", name: "Zoom out", glyph: "−", run: () => zoom(-0.5, 1.5) },
  { key: "ArrowLeft", name: "Earlier", glyph: "←", run: () => zoom(-0.5, 0.5) },
  { key: "ArrowRight", name: "Later", glyph: "→", run: () => zoom(0.5, 1.5) },
];

function backToNow(): void {
  setParams({ since: null, until: null });
}

function History({ event }: { event: LagEvent }) {
  const { since, until } = rangeOf(place.value.params);
  const page = useSignal<HistoryPage | null>(null);
  const failure = useSignal<string | null>(null);
  const retry = useSignal(0);
  const reload = until === null ? Math.floor(now.value / RELOAD_MS) : 0;
  const knownSince = page.value?.points[0]?.at ?? 0;
  useKeys({ "0": backToNow, ...Object.fromEntries(ZOOMS.map(({ key, run }) => [key, () => run(knownSince)])) });
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
  return (
    <section aria-label="History">
      <div class="ranges" role="group" aria-label="Time range">
        {RANGES.map((range) => (
          <button type="button" key={range} aria-pressed={until === null && since === range} onClick={() => setParams({ since: range, until: null })}>
            {range}
          </button>
        ))}
        {ZOOMS.map(({ key, name, glyph, run }) => (
          <button type="button" key={key} aria-label={name} title={`${name} ( ${glyph} )`} onClick={() => run(knownSince)}>
            {glyph}
          </button>
        ))}
        {until !== null && (
          <>
            <span>
              <Moment at={Number(since)} /> to <Moment at={Number(until)} />
            </span>
            <button type="button" title="Back to now ( 0 )" onClick={backToNow}>
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
      {page.value && <HistoryCharts page={page.value} newest={until === null ? event : null} onZoom={show} />}
    </section>
  );
}

/** The address of this page with the range between two moments, which others see as it is now. */
function linkToShown(): string {
  const [since, until] = momentsOf(place.value.params);
  const url = new URL(location.href);
  url.searchParams.set("since", String(since));
  url.searchParams.set("until", String(until));
  return url.href;
}

/** The request for what is shown. */
function curl(event: LagEvent): string {
  const { since, until } = rangeOf(place.value.params);
  const path = `lag/${segment(event.query_id)}`;
  const token = pageMeta("principal") === null ? "" : '-H "Authorization: Bearer $SPARKLAG_TOKEN" ';
  const quoted = (href: string) => `curl -s ${token}'${href.replaceAll("'", "%27")}'`;
  return `${quoted(address(path))}\n${quoted(address(`${path}/history`, { since, until }))}`;
}
