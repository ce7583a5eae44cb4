/** Requests to the service that this page came from. */

/** The service's answer to a request that it refused: RFC 9457. */
export class Problem extends Error {
  readonly status: number;
  readonly queryIds: string[];

  constructor(status: number, detail: string, queryIds: string[] = []) {
    super(detail);
    this.status = status;
    this.queryIds = queryIds;
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

/** The JSON document at a path. Throws Problem; TypeError where the service does not answer. */
export async function getJson<T>(path: string, params: Params = {}, signal?: AbortSignal): Promise<T> {
  const response = await fetch(address(path, params), { signal: signal ?? null, headers: { accept: "application/json" } });
  if (!response.ok) throw await problemOf(response);
  return (await response.json()) as T;
}

/** What a response that is not OK says. */
export async function problemOf(response: Response): Promise<Problem> {
  try {
    const { detail, title, query_ids } = await response.json();
    return new Problem(response.status, detail ?? title ?? response.statusText, query_ids ?? []);
  } catch {
    return new Problem(response.status, `HTTP ${response.status} ${response.statusText}`.trim());
  }
}
