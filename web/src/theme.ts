/** Dark, light, or what the system has; kept in this browser. */

import { effect, signal } from "@preact/signals";
import { stored } from "./storage.ts";

export const THEMES = { auto: "Theme: system", light: "Theme: light", dark: "Theme: dark" } as const;
export type Theme = keyof typeof THEMES;

const system = matchMedia("(prefers-color-scheme: dark)");
const kept = stored("sparklag-theme", Object.keys(THEMES) as Theme[], "auto");

export const theme = signal<Theme>(kept.value);
/** Which of both is shown. */
export const shown = signal<"light" | "dark">("light");

function apply(): void {
  shown.value = theme.value === "auto" ? (system.matches ? "dark" : "light") : theme.value;
  document.documentElement.dataset.theme = shown.value;
}

system.addEventListener("change", apply);
effect(apply);

export function setTheme(value: Theme): void {
  theme.value = value;
  kept.keep(value);
}

/** The value of a colour of styles.css. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
