/** Small pieces of text. */

import type { ComponentChildren } from "preact";
import { now } from "../clock.ts";
import { ago, local, printable, utc } from "../format.ts";
import { GLYPHS, mark } from "../status.ts";

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

/** A moment in the reader's zone, UTC when pointed at. */
export function Moment({ at }: { at: number }) {
  return (
    <time dateTime={new Date(at).toISOString()} title={utc(at)}>
      {local(at, now.value)}
    </time>
  );
}

/** How long ago that was; the time itself when pointed at. */
export function Age({ at }: { at: number | null | undefined }) {
  if (at == null) return <>never</>;
  return (
    <time dateTime={new Date(at).toISOString()} title={`${local(at, now.value)}, ${utc(at)}`}>
      {ago(at, now.value)}
    </time>
  );
}

/** A value with what it is. */
export function Figure({ name, children, title }: { name: string; children: ComponentChildren; title?: string }) {
  return (
    <div class="figure" title={title}>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
