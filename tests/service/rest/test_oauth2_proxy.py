"""The recipe of docs/operator/single-sign-on.md: a browser logs in at an issuer."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from sparklag_jobs.broker.child_process import ChildProcess, free_port
from sparklag_schemas.settings import HttpGrantSettings, HttpJwtSettings
from tests.child_processes import running
from tests.faults.tools import oauth2_proxy
from tests.issuer import AUDIENCE, CLIENT_SECRET, Issuer
from tests.messages import lag_event
from tests.service.live.live_server import live_server
from tests.waiting import DEADLINE_S, wait_until_up

PAGE = Path(__file__).parents[3] / "docs" / "operator" / "single-sign-on.md"


@pytest.mark.slow
async def test_a_browser_that_logged_in_at_the_issuer_sees_its_queries(tmp_path: Path) -> None:
    program = await asyncio.to_thread(oauth2_proxy, lambda text: None)
    url = f"http://127.0.0.1:{free_port()}"
    grants = {"team-a": HttpGrantSettings(scopes=["lag", "admin"], queries=["team-a-.*"])}
    with Issuer() as issuer:
        issuer.claims_of_login = {"email": "a@b.example", "groups": ["team-a"]}
        accepted = HttpJwtSettings(
            issuer=issuer.url, audiences=[AUDIENCE], claim="groups", grants=grants
        )
        async with (
            live_server(http_jwt=accepted, http_hosts=["lag.example.com"]) as live,
            httpx.AsyncClient(timeout=DEADLINE_S, base_url=url, follow_redirects=True) as browser,
        ):
            for query_id, query in (("a1", "team-a-orders"), ("b1", "team-b-bills")):
                live.show(lag_event(query_id=query_id, query=query, status="FAILED"))
            (settings,) = re.findall(r"```ini\n(.*?)```", PAGE.read_text(), re.DOTALL)
            (tmp_path / "proxy.cfg").write_text(settings)
            (tmp_path / "client-secret").write_text(CLIENT_SECRET)
            (tmp_path / "cookie-secret").write_bytes(b"c" * 32)
            command = [
                *(str(program), "--config=proxy.cfg", f"--http-address={url}"),
                *(f"--upstream={live.url}/", f"--oidc-issuer-url={issuer.url}"),
                # A browser sends no secure cookie without TLS.
                *(f"--redirect-url={url}/oauth2/callback", "--cookie-secure=false"),
            ]
            proxy = ChildProcess("proxy", command, log_path=tmp_path / "log", directory=tmp_path)

            def is_up() -> bool:
                with suppress(httpx.TransportError):
                    return httpx.get(f"{url}/ping").is_success
                return False

            with running(proxy):
                await asyncio.to_thread(wait_until_up, [proxy], is_up, DEADLINE_S)
                seen = await browser.get("/lag")
                assert [query["query"] for query in seen.json()["queries"]] == ["team-a-orders"]
                # The service sees the name of the proxy. Kafka is not there.
                for site, status in {"cross-site": 403, "same-origin": 503}.items():
                    headers = {"host": "lag.example.com", "sec-fetch-site": site}
                    answer = await browser.delete("/lag/a1", headers=headers)
                    assert answer.status_code == status, answer.text
