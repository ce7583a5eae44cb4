/** `/topics`: every topic that is read, the worst readers first. */

import { useEffect, useMemo } from "preact/hooks";
import type { Figure } from "../definitions.ts";
import { followFleet, loaded, receivedAt, revision, streamState, summaries, totalsOf } from "../fleet.ts";
import { records, span } from "../format.ts";
import type { LagSummary } from "../generated/rest.ts";
import { useKeys } from "../keys.ts";
import { FigureTable } from "../parts/figure_table.tsx";
import { Header } from "../parts/header.tsx";
import { Foreign, Headroom, StatusMark } from "../parts/text.tsx";
import { goBack, place, setParams, topicHref, useTitle } from "../router.ts";
import { bySeverity, compare } from "../status.ts";

const FIGURES: Figure[] = ["status", "topic", "readers", "lag_of_readers", "time_lag", "headroom"];
/** More are found by their names. */
const SHOWN = 500;

interface Topic {
  name: string;
  readers: LagSummary[];
  worst: LagSummary;
}

/** By their worst reader, then by name. */
export function topicsOf(events: readonly LagSummary[]): Topic[] {
  const byName = new Map<string, LagSummary[]>();
  for (const event of events) {
    for (const name of event.topics) {
      const readers = byName.get(name);
      if (readers) readers.push(event);
      else byName.set(name, [event]);
    }
  }
  return [...byName]
    .map(([name, readers]) => ({ name, readers, worst: readers.reduce((a, b) => (bySeverity(a, b) <= 0 ? a : b)) }))
    .sort((a, b) => bySeverity(a.worst, b.worst) || compare(a.name, b.name));
}

export function TopicsPage() {
  useEffect(followFleet, []);
  useKeys({ Escape: () => (place.value.params.get("filter") ? setParams({ filter: null }) : goBack()) });
  useTitle("Topics");
  const filter = place.value.params.get("filter") ?? "";
  const all = useMemo(() => topicsOf(summaries.value), [revision.value]);
  const named = all.filter(({ name }) => name.toLowerCase().includes(filter.toLowerCase()));
  return (
    <>
      <Header state={streamState.value} receivedAt={receivedAt.value} />
      <main id="main" tabIndex={-1}>
        <h1>
          Topics <small>{records(all.length)}</small>
        </h1>
        <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
          <label>
            <span class="hidden">Filter topics</span>
            <input type="search" placeholder="Filter topics" value={filter} onInput={(event) => setParams({ filter: event.currentTarget.value })} />
          </label>
        </form>
        {!loaded.value ? (
          <p class="empty">Reading the queries …</p>
        ) : named.length === 0 ? (
          <p class="empty">{all.length === 0 ? "No observed query or group reads a topic." : "No topic fits the filter."}</p>
        ) : (
          <>
            <FigureTable name="Topics" figures={FIGURES}>
              {named.slice(0, SHOWN).map((topic) => (
                <TopicRow key={topic.name} topic={topic} />
              ))}
            </FigureTable>
            {named.length > SHOWN && <p>and {records(named.length - SHOWN)} more topics, which are less urgent</p>}
          </>
        )}
      </main>
    </>
  );
}

/** The next loss first, then the least time, then the fewest records. */
function byHeadroom(a: LagSummary, b: LagSummary): number {
  const order = (x: number | null | undefined, y: number | null | undefined) => (x === y ? 0 : (x ?? Infinity) - (y ?? Infinity) || 0);
  return order(a.loss_expected_at, b.loss_expected_at) || order(a.min_headroom_s, b.min_headroom_s) || order(a.min_headroom_records, b.min_headroom_records);
}

function TopicRow({ topic: { name, readers, worst } }: { topic: Topic }) {
  const totals = totalsOf(readers);
  const nearest = readers.reduce((a, b) => (byHeadroom(a, b) <= 0 ? a : b));
  const groups = readers.filter(({ origin }) => origin === "group").length;
  return (
    <tr>
      <td>
        <StatusMark status={worst.status} />
      </td>
      <th scope="row">
        <a href={topicHref(name)}>
          <Foreign text={name} />
        </a>
      </th>
      <td class="readers">
        {records(readers.length)} {groups > 0 && <small>{groups === readers.length ? "groups" : `${records(groups)} of them groups`}</small>}
      </td>
      <td class="lag_of_readers">
        {records(totals.records)} {totals.unknown > 0 && <small>and {records(totals.unknown)} unknown</small>}
      </td>
      <td class="time_lag">{totals.oldestS === null ? "" : span(totals.oldestS)}</td>
      <td class="headroom">
        <Headroom lossAt={nearest.loss_expected_at} seconds={nearest.min_headroom_s} count={nearest.min_headroom_records} />
      </td>
    </tr>
  );
}
