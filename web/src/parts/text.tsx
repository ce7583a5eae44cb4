/** Small pieces of text. */

import type { ComponentChildren } from "preact";
import { now } from "../clock.ts";
import { DEFINITIONS, type Figure as FigureName } from "../definitions.ts";
import { ago, local, printable, records, span, utc } from "../format.ts";
import { queryHref, topicHref } from "../router.ts";
import { displayName, GLYPHS, mark } from "../status.ts";
import { times } from "../times.ts";

/** A status by its shape, its word and its colour. */
export function StatusMark({ status }: { status: string }) {
  const its = mark(status);
  return (
    <span class={`status ${its}`}>
      <span aria-hidden="true">{GLYPHS[its]}</span> {printable(status)}
    </span>
  );
}

/** Foreign text: shown as text, in its own direction, whole when pointed at. */
export function Foreign({ text, class: name }: { text: string; class?: string }) {
  const shown = printable(text);
  return (
    <bdi class={name} title={shown}>
      {shown}
    </bdi>
  );
}

/** A moment: its time; in UTC, and how long ago, when pointed at. */
export function Moment({ at }: { at: number }) {
  return (
    <time dateTime={new Date(at).toISOString()} title={`${utc(at)}, ${ago(at, now.value)}`}>
      {times.value === "utc" ? utc(at) : local(at, now.value)}
    </time>
  );
}

/** How long ago that was, or when, as the reader chose. */
export function Age({ at }: { at: number | null | undefined }) {
  if (at == null) return <>never</>;
  if (times.value !== "relative") return <Moment at={at} />;
  return (
    <time dateTime={new Date(at).toISOString()} title={`${local(at, now.value)}, ${utc(at)}`}>
      {ago(at, now.value)}
    </time>
  );
}

/** The word for a figure; what it means, when pointed at or focused. */
export function Term({ of }: { of: FigureName }) {
  const { name, means } = DEFINITIONS[of];
  return (
    <button type="button" class="term" data-definition={means} aria-description={means}>
      {name}
    </button>
  );
}

/** A value with what it is: a figure that is defined, or another name. */
export function Figure({ of, children }: { of: FigureName | { name: string }; children: ComponentChildren }) {
  return (
    <div class="figure">
      <dt>{typeof of === "string" ? <Term of={of} /> : of.name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** A query by its name; where another has that name, with the beginning of its id. */
export function QueryLink({ event, isShared }: { event: { query?: string | null; query_id: string; application?: string | null }; isShared: boolean }) {
  return (
    <span class="named">
      <a href={queryHref(event.query_id)}>
        <Foreign text={displayName(event)} />
      </a>
      {isShared && (
        <code class="identity" title={event.application ? printable(`in ${event.application}`) : undefined}>
          {printable(event.query_id.slice(0, 8))}
        </code>
      )}
    </span>
  );
}

/** The first topics of a query. */
export function TopicLinks({ topics, most = 3 }: { topics: readonly string[]; most?: number }) {
  return (
    <>
      {topics.slice(0, most).map((topic, index) => (
        <span key={topic}>
          {index > 0 && ", "}
          <a href={topicHref(topic)}>{printable(topic)}</a>
        </span>
      ))}
      {topics.length > most && ` and ${topics.length - most} more topics`}
    </>
  );
}

interface HeadroomProps {
  lossAt?: number | null | undefined;
  seconds: number | null | undefined;
  count: number | null | undefined;
}

/** Before retention deletes records that are not processed: in time where that is known. */
export function Headroom({ lossAt, seconds, count }: HeadroomProps) {
  if (lossAt != null) return <strong class="bad">loss in {span(Math.max(0, (lossAt - now.value) / 1000))}</strong>;
  if (seconds != null) return <>{span(seconds)}</>;
  return count != null ? <>{records(count)} records</> : null;
}
