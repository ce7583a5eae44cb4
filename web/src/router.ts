/** The address bar: which page, and its parameters. */

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { segment } from "./api.ts";

export type Route =
  | { page: "fleet" }
  | { page: "query"; query: string }
  | { page: "topic"; topic: string }
  | { page: "topics" }
  | { page: "service" }
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
  if (second === undefined && (first === "topics" || first === "service")) return { page: first };
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

export function pageHref(page: "topics" | "service"): string {
  return new URL(page, document.baseURI).href;
}

/** The title of a page, as long as it is shown. */
export function useTitle(name: string): void {
  useEffect(() => {
    document.title = `${name} · sparklag`;
  }, [name]);
}

/** Change parameters of the address, in place; those without a value go. */
export function setParams(changes: Record<string, string | null>): void {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(changes)) {
    if (value) url.searchParams.set(name, value);
    else url.searchParams.delete(name);
  }
  history.replaceState(history.state, "", url);
  place.value = read();
}

/** What an entry of the browser's history knows of its page. */
interface Visit {
  /** A page of this application led here. */
  isFollowed?: boolean;
  /** The link that was followed from here, and how far the page was scrolled then. */
  left?: { href: string; scrollY: number };
}

function visit(): Visit {
  return (history.state as Visit | null) ?? {};
}

/** Follow links between the pages without loading anything; every other link is the browser's. */
export function followLinks(): void {
  history.scrollRestoration = "manual";
  addEventListener("popstate", () => {
    const { left } = visit();
    place.value = read();
    requestAnimationFrame(() => {
      if (left) restore(left);
      else scrollTo(0, 0);
    });
  });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element | null)?.closest("a");
    if (!link || link.target || link.hasAttribute("download") || routeOf(link.href) === null) return;
    event.preventDefault();
    follow(link.href);
  });
}

function follow(href: string): void {
  history.replaceState({ ...visit(), left: { href, scrollY } } satisfies Visit, "");
  history.pushState({ isFollowed: true } satisfies Visit, "", href);
  place.value = read();
  scrollTo(0, 0);
  // A screen reader begins with the new page.
  queueMicrotask(() => document.getElementById("main")?.focus());
}

/** The page that was left has its rows at once; others may come a little later: until then it is too short to scroll. */
function restore({ href, scrollY }: NonNullable<Visit["left"]>, isScrolled = false, tries = 30): void {
  if (visit().left?.href !== href) return; // the reader went on
  const isLong = document.documentElement.scrollHeight >= scrollY + innerHeight;
  if (isLong && !isScrolled) scrollTo(0, scrollY);
  const link = [...document.querySelectorAll<HTMLAnchorElement>("main a")].find((each) => each.href === href);
  if (link) link.focus({ preventScroll: isLong || isScrolled });
  else if (tries > 0) setTimeout(() => restore({ href, scrollY }, isLong || isScrolled, tries - 1), 100);
}

/** To the page that led here; without one, to all queries. */
export function goBack(): void {
  if (visit().isFollowed) history.back();
  else follow(fleetHref());
}
