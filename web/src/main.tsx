import { render } from "preact";
import { useEffect } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import "./styles.css";
import { followHealth } from "./health.ts";
import { FleetPage } from "./pages/fleet.tsx";
import { QueryPage } from "./pages/query.tsx";
import { ServicePage } from "./pages/service.tsx";
import { TopicPage } from "./pages/topic.tsx";
import { TopicsPage } from "./pages/topics.tsx";
import { fleetHref, followLinks, place } from "./router.ts";

function Page() {
  useEffect(followHealth, []);
  const { route } = place.value;
  if (route.page === "query") return <QueryPage key={route.query} query={route.query} />;
  if (route.page === "topic") return <TopicPage key={route.topic} topic={route.topic} />;
  if (route.page === "topics") return <TopicsPage />;
  if (route.page === "service") return <ServicePage />;
  if (route.page === "fleet") return <FleetPage />;
  return (
    <main id="main" tabIndex={-1}>
      <h1>No such page</h1>
      <p>
        <a href={fleetHref()}>Streaming queries</a>
      </p>
    </main>
  );
}

followLinks();
render(<Page />, document.getElementById("app") as HTMLElement);
