/** Requests to the service that this page came from. */

/** The service's answer to a request that it refused: RFC 9457. */
export class Problem extends Error {
  readonly status: number;
  /** The queries that the name means, by their ids. */
  readonly queryIds: string[];
  /** Names of queries that are like the one that was asked for. */
  readonly alike: string[];

  constructor(status: number, detail: string, queryIds: string[] = [], alike: string[] = []) {
    super(detail);
    this.status = status;
    this.queryIds = queryIds;
    this.alike = alike;
  }
}

export type Params = Record<string, string | number | null | undefined>;

/** The absolute address of a path without a leading slash. Parameters without a value are left out. */
export function address(path: string, params: Params = {}): string {
  const url = new URL(path, document.baseURI);
  for (const [name, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, String(value));
  }
  return url.href;
}

/** A name as one segment of a path. */
export function segment(name: string): string {
  return encodeURIComponent(name.toWellFormed());
}

/** A page that was loaded anew reloads for the login form only after a response: else it would do so without end. */
let mayReload = (performance.getEntriesByType("navigation")[0] as PerformanceNavigationTiming | undefined)?.type !== "reload";

/** The response at a path. Without a valid token the login form comes in place of the page. Throws Problem; TypeError
 * where the service does not answer. */
export async function get(path: string, params: Params, init: RequestInit): Promise<Response> {
  const response = await fetch(address(path, params), init);
  if (response.status === 401 && mayReload) location.reload();
  mayReload = response.ok || (mayReload && response.status !== 401);
  if (!response.ok) throw await problemOf(response);
  return response;
}

/** The JSON document at a path. Throws as `get` does. */
export async function getJson<T>(path: string, params: Params = {}, signal?: AbortSignal): Promise<T> {
  const response = await get(path, params, { signal: signal ?? null, headers: { accept: "application/json" } });
  return (await response.json()) as T;
}

/** What the service wrote into this page. `principal`: the name of the token of who has logged in; null: nobody, or it
 * came by a proxy. `grafana`: its address; null: not set. */
export function pageMeta(name: "principal" | "grafana" | "version"): string | null {
  return document.querySelector<HTMLMetaElement>(`meta[name="sparklag-${name}"]`)?.content ?? null;
}

/** Forget a query that no driver reports. Throws as `get` does. */
export async function forget(queryId: string): Promise<void> {
  await get(`lag/${segment(queryId)}`, {}, { method: "DELETE" });
}

/** Clear the cookie, and show the login form. */
export async function logOut(): Promise<void> {
  await fetch(address("logout"), { method: "POST" }).catch(() => undefined);
  location.reload();
}

async function problemOf(response: Response): Promise<Problem> {
  try {
    const { detail, title, query_ids, alike } = await response.json();
    return new Problem(response.status, detail ?? title ?? response.statusText, query_ids ?? [], alike ?? []);
  } catch {
    return new Problem(response.status, `HTTP ${response.status} ${response.statusText}`.trim());
  }
}
