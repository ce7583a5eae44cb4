/** `/service`: the instances of the service, and what works of the one that this page came from. */

import { useEffect } from "preact/hooks";
import { pageMeta } from "../api.ts";
import { now } from "../clock.ts";
import type { Figure as FigureName } from "../definitions.ts";
import { followFleet, loaded, receivedAt, streamState, summaries } from "../fleet.ts";
import { printable, records } from "../format.ts";
import type { LagSummary } from "../generated/rest.ts";
import { health } from "../health.ts";
import { useKeys } from "../keys.ts";
import { FigureTable } from "../parts/figure_table.tsx";
import { Header } from "../parts/header.tsx";
import { Age, Figure, Foreign } from "../parts/text.tsx";
import { goBack, useTitle } from "../router.ts";
import { compare, GLYPHS } from "../status.ts";

const FIGURES: FigureName[] = ["instance", "query", "share", "last_measured"];
/** Each query is measured at every heartbeat, 10 s by default. */
const LATE_MS = 30_000;

interface Instance {
  name: string;
  queries: number;
  measuredAt: number;
}

export function instancesOf(events: readonly LagSummary[]): Instance[] {
  const byName = new Map<string, Instance>();
  for (const { instance, measured_by, measured_at } of events) {
    const name = instance ?? (measured_by === "embedded" ? "embedded in the drivers" : "not reported");
    const its = byName.get(name) ?? { name, queries: 0, measuredAt: 0 };
    its.queries += 1;
    its.measuredAt = Math.max(its.measuredAt, measured_at);
    byName.set(name, its);
  }
  return [...byName.values()].sort((a, b) => compare(a.name, b.name));
}

export function ServicePage() {
  useEffect(followFleet, []);
  useKeys({ Escape: goBack });
  useTitle("Service");
  const its = health.value;
  const works = its !== null && Object.keys(its.failing).length === 0;
  const instances = instancesOf(summaries.value);
  return (
    <>
      <Header state={streamState.value} receivedAt={receivedAt.value} />
      <main id="main" tabIndex={-1}>
        <h1>Service</h1>
        <dl class="totals" aria-label="This instance">
          <Figure of={{ name: "This page is from" }}>{its?.instance ? <Foreign text={its.instance} /> : printable(location.host)}</Figure>
          <Figure of={{ name: "Health" }}>
            <span class={works ? "ok" : "bad"}>
              <span aria-hidden="true">{works ? GLYPHS.ok : GLYPHS.bad}</span> {its === null ? "does not answer" : works ? "ready" : "not ready"}
            </span>
          </Figure>
          <Figure of={{ name: "Version" }}>{pageMeta("version") ?? "unknown"}</Figure>
        </dl>
        <h2>Instances</h2>
        {!loaded.value ? (
          <p class="empty">Reading the queries …</p>
        ) : instances.length === 0 ? (
          <p class="empty">No instance measures a query yet.</p>
        ) : (
          <FigureTable name="Instances" figures={FIGURES} names={{ query: "Queries" }}>
            {instances.map((instance) => (
              <InstanceRow key={instance.name} instance={instance} total={summaries.value.length} />
            ))}
          </FigureTable>
        )}
        <p class="note">An instance without a query is not listed. If one ends, the others measure its queries.</p>
      </main>
    </>
  );
}

function InstanceRow({ instance: { name, queries, measuredAt }, total }: { instance: Instance; total: number }) {
  const isLate = now.value - measuredAt > LATE_MS;
  return (
    <tr>
      <th scope="row">
        <span class={isLate ? "bad" : "ok"}>
          <span aria-hidden="true">{isLate ? GLYPHS.bad : GLYPHS.ok}</span>
          <span class="hidden">{isLate ? "late" : "measures"}</span>
        </span>{" "}
        <Foreign text={name} />
      </th>
      <td class="query">{records(queries)}</td>
      <td class="share">
        {Math.round((100 * queries) / total)} % <progress max={total} value={queries} aria-label={`Share of ${printable(name)}`} />
      </td>
      <td class="last_measured">
        <Age at={measuredAt} />
      </td>
    </tr>
  );
}
