/** Copies a text, and says so. */

import { useState } from "preact/hooks";

const SAID_MS = 5_000;

export function CopyButton({ name, text }: { name: string; text: () => string }) {
  const [said, say] = useState("");
  const copy = async () => {
    // A screen reader says only what changes.
    say("");
    try {
      await navigator.clipboard.writeText(text());
      say("copied");
    } catch {
      // Without HTTPS a browser has no clipboard for pages, but still copies a selection.
      say(copySelection(text()) ? "copied" : "the browser does not allow it");
    }
    setTimeout(() => say(""), SAID_MS);
  };
  return (
    <span class="copy">
      <button type="button" onClick={copy}>
        {name}
      </button>
      <span role="status">{said}</span>
    </span>
  );
}

function copySelection(text: string): boolean {
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}
