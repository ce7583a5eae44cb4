/** Dark, light, or what the system has; kept in this browser. */

import { effect, signal } from "@preact/signals";

export type Theme = "auto" | "light" | "dark";

const KEY = "sparklag-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

export const theme = signal<Theme>(stored());
/** Which of both is shown. */
export const shown = signal<"light" | "dark">("light");

function stored(): Theme {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "auto";
  } catch {
    return "auto"; // storage is forbidden here
  }
}

function apply(): void {
  shown.value = theme.value === "auto" ? (system.matches ? "dark" : "light") : theme.value;
  document.documentElement.dataset.theme = shown.value;
}

system.addEventListener("change", apply);
effect(apply);

export function setTheme(value: Theme): void {
  theme.value = value;
  try {
    localStorage.setItem(KEY, value);
  } catch {
    // It holds until the page is closed.
  }
}

/** The value of a colour of styles.css. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
