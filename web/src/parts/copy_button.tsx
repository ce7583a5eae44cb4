/** Copies a text, and says so. */

import { useState } from "preact/hooks";

export function CopyButton({ name, text }: { name: string; text: () => string }) {
  const [said, say] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text());
      say("copied");
    } catch {
      // Without HTTPS a browser has no clipboard for pages, but still copies a selection.
      say(copySelection(text()) ? "copied" : "the browser does not allow it");
    }
    setTimeout(() => say(""), 2_000);
  };
  return (
    <button type="button" onClick={copy}>
      {name}
      <span role="status">{said && `: ${said}`}</span>
    </button>
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
