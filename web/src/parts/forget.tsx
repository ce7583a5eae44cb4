/** Forgets queries that no driver reports, after a question. */

import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { forget, Problem } from "../api.ts";
import { printable, records } from "../format.ts";
import type { LagSummary } from "../generated/rest.ts";
import { displayName } from "../status.ts";

const LISTED = 8;

type Query = Pick<LagSummary, "query_id" | "query" | "status">;

export function ForgetButton({ queries, name }: { queries: readonly Query[]; name: string }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const asked = useSignal<readonly Query[]>([]);
  const done = useSignal<number | null>(null);
  const failure = useSignal<string | null>(null);
  const ask = () => {
    asked.value = queries;
    done.value = failure.value = null;
    dialog.current?.showModal();
  };
  const run = async () => {
    done.value = 0;
    for (const { query_id } of asked.value) {
      if (!dialog.current?.open) return;
      try {
        await forget(query_id);
      } catch (error) {
        // Who else forgot it is no trouble.
        if (!(error instanceof Problem && error.status === 404)) {
          failure.value = (error as Error).message;
          return;
        }
      }
      done.value += 1;
    }
    dialog.current?.close();
  };
  const { length } = asked.value;
  return (
    <>
      {queries.length > 0 && (
        <button type="button" onClick={ask}>
          {name}
        </button>
      )}
      <dialog ref={dialog} aria-labelledby="forget-question">
        <h2 id="forget-question">Forget {length === 1 ? "this query" : `these ${records(length)} queries`}?</h2>
        <ul>
          {asked.value.slice(0, LISTED).map((query) => (
            <li key={query.query_id}>
              {query.status} <bdi>{printable(displayName(query))}</bdi>
            </li>
          ))}
          {length > LISTED && <li>and {records(length - LISTED)} more</li>}
        </ul>
        <p>
          No driver reports {length === 1 ? "it" : "them"}. The lag, the status and the alarms go, for everybody. A query that is started
          again appears again; the offset store keeps its offsets.
        </p>
        <p role="status">
          {done.value !== null && `${records(done.value)} of ${records(length)} forgotten. `}
          {failure.value !== null && <span class="bad">{printable(failure.value)}</span>}
        </p>
        <form method="dialog" class="actions">
          <button type="button" disabled={done.value !== null} onClick={() => void run()}>
            Forget
          </button>
          {/* A key that is held down answers no. */}
          <button autofocus>{done.value === null ? "Cancel" : failure.value === null ? "Stop" : "Close"}</button>
        </form>
      </dialog>
    </>
  );
}
