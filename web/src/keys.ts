/** Keys of a page, from anywhere on it but the fields that one types into. */

import { useLayoutEffect, useRef } from "preact/hooks";

/** By the value of `KeyboardEvent.key`. False: the key was not used, and keeps its usual effect. */
export type Keys = Record<string, (event: KeyboardEvent) => boolean | void>;

export function useKeys(keys: Keys): void {
  const latest = useRef(keys);
  latest.current = keys;
  useLayoutEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      // Esc closes a list of choices; shift and an arrow select text.
      if (event.target instanceof HTMLSelectElement || (event.shiftKey && event.key.length > 1)) return;
      if (isEditable(event.target) && event.key !== "Escape") return;
      const use = latest.current[event.key];
      if (use && use(event) !== false) event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

function isEditable(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches("input:not([type=checkbox]), select, textarea");
}
