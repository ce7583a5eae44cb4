/** The address bar: which page, and its parameters. */

import { signal } from "@preact/signals";
import { segment } from "./api.ts";

export type Route =
  | { page: "fleet" }
  | { page: "query"; query: string }
  | { page: "topic"; topic: string }
  | { page: "unknown" };

export interface Place {
  route: Route;
  params: URLSearchParams;
}

/** Where the reader is. */
export const place = signal<Place>(read());

/** The page of an address below the page's base; null: it is none of this application. */
export function routeOf(href: string): Route | null {
  const base = new URL(document.baseURI);
  const url = new URL(href, base);
  if (url.origin !== base.origin || !url.pathname.startsWith(base.pathname)) return null;
  const [first = "", second, ...rest] = url.pathname.slice(base.pathname.length).split("/");
  if (first === "" && second === undefined) return { page: "fleet" };
  if (rest.length > 0 || !second) return null;
  try {
    if (first === "q") return { page: "query", query: decodeURIComponent(second) };
    if (first === "t") return { page: "topic", topic: decodeURIComponent(second) };
  } catch {
    return { page: "unknown" };
  }
  return null;
}

function read(): Place {
  return {
    route: routeOf(location.href) ?? { page: "unknown" },
    params: new URLSearchParams(location.search),
  };
}

export function queryHref(query: string): string {
  return new URL(`q/${segment(query)}`, document.baseURI).href;
}

export function topicHref(topic: string): string {
  return new URL(`t/${segment(topic)}`, document.baseURI).href;
}

export function fleetHref(): string {
  return document.baseURI;
}

/** Change parameters of the address, in place; those without a value go. */
export function setParams(changes: Record<string, string | null>): void {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(changes)) {
    if (value) url.searchParams.set(name, value);
    else url.searchParams.delete(name);
  }
  history.replaceState(null, "", url);
  place.value = read();
}

/** Follow links between the pages without loading anything; every other link is the browser's. */
export function followLinks(): void {
  addEventListener("popstate", () => (place.value = read()));
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element | null)?.closest("a");
    if (!link || link.target || link.hasAttribute("download") || routeOf(link.href) === null) return;
    event.preventDefault();
    history.pushState(null, "", link.href);
    place.value = read();
    scrollTo(0, 0);
    // A screen reader begins with the new page.
    queueMicrotask(() => document.getElementById("main")?.focus());
  });
}
