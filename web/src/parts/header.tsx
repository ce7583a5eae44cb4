/** The top of every page: where one is, whether it is live, what fails. */

import { pageMeta, logOut } from "../api.ts";
import { now } from "../clock.ts";
import { printable, span } from "../format.ts";
import { health } from "../health.ts";
import { fleetHref, pageHref, place } from "../router.ts";
import type { StreamState } from "../stream.ts";
import { setTheme, theme, THEMES, type Theme } from "../theme.ts";
import { setTimes, TIMES, times, type Times } from "../times.ts";
import { Select } from "./select.tsx";

const PAGES = [
  { page: "fleet", name: "Queries", href: fleetHref },
  { page: "topics", name: "Topics", href: () => pageHref("topics") },
  { page: "service", name: "Service", href: () => pageHref("service") },
];

export function Header({ state, receivedAt }: { state: StreamState; receivedAt: number | null }) {
  return (
    <header>
      <a class="skip" href={`${location.href.split("#")[0]}#main`}>
        Skip to the content
      </a>
      <div class="bar">
        <a class="brand" href={fleetHref()}>
          <img src="icon.svg" alt="" width="22" height="22" /> sparklag
        </a>
        <StreamBadge state={state} receivedAt={receivedAt} />
        <nav aria-label="Service">
          {PAGES.map(({ page, name, href }) => (
            <a key={page} href={href()} aria-current={place.value.route.page === page ? "page" : undefined}>
              {name}
            </a>
          ))}
          <a href="docs">REST</a>
          <a href="metrics">Metrics</a>
          <Select name="Times" isNameHidden value={times.value} of={Object.keys(TIMES)} label={(value) => TIMES[value as Times]} onChange={(value) => setTimes(value as Times)} />
          <Select name="Theme" isNameHidden value={theme.value} of={Object.keys(THEMES)} label={(value) => THEMES[value as Theme]} onChange={(value) => setTheme(value as Theme)} />
          <Login />
        </nav>
      </div>
      <Failures />
    </header>
  );
}

function Login() {
  const name = pageMeta("principal");
  if (name === null) return null;
  return (
    <>
      <span class="principal">
        <span class="hidden">Logged in as </span>
        {printable(name)}
      </span>
      <button type="button" onClick={() => void logOut()}>
        Log out
      </button>
    </>
  );
}

const WORDS = { live: "live", connecting: "connecting", waiting: "asking again" };

function StreamBadge({ state, receivedAt }: { state: StreamState; receivedAt: number | null }) {
  if (state.kind !== "down") {
    const isLive = state.kind === "live";
    return (
      <p role="status" class={`stream ${isLive ? "ok" : ""}`}>
        <span aria-hidden="true">{isLive ? "●" : "○"}</span> {WORDS[state.kind]}
      </p>
    );
  }
  const age = receivedAt === null ? "" : `, showing data ${span(Math.max(0, (now.value - receivedAt) / 1000))} old`;
  return (
    <p role="status" class="stream bad">
      <span aria-hidden="true">■</span> stream down{age}, reconnecting <span class="reason">({printable(state.reason)})</span>
    </p>
  );
}

/** The service's own trouble, said first. */
function Failures() {
  const known = health.value;
  if (!known) return null;
  const failing = Object.entries(known.failing);
  const degraded = Object.entries(known.degraded);
  return (
    <>
      {failing.length > 0 && (
        <div role="alert" class="alert bad">
          <strong>
            <span aria-hidden="true">■</span> This service does not work: what is below may be old or incomplete.
          </strong>
          <Reasons parts={failing} />
        </div>
      )}
      {degraded.length > 0 && (
        <div role="status" class="alert warn">
          <strong>
            <span aria-hidden="true">▲</span> Some parts do not work; other queries are not affected.
          </strong>
          <Reasons parts={degraded} />
        </div>
      )}
    </>
  );
}

function Reasons({ parts }: { parts: [string, string][] }) {
  return (
    <ul>
      {parts.slice(0, 10).map(([part, reason]) => (
        <li key={part}>
          {printable(part)}: {printable(reason)}
        </li>
      ))}
      {parts.length > 10 && <li>and {parts.length - 10} more: see /health/ready</li>}
    </ul>
  );
}
