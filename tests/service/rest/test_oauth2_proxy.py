"""The recipe of docs/operator/single-sign-on.md: a browser logs in at an issuer."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from sparklag_jobs.broker.child_process import ChildProcess, free_port
from sparklag_schemas import Settings, encode
from sparklag_schemas.settings import HttpGrantSettings, HttpJwtSettings
from sparklag_service.instance_state import InstanceState
from sparklag_service.rest.http_server import HttpServer
from sparklag_service.server import bind
from sparklag_service.view.view import Entry
from tests.faults.tools import oauth2_proxy
from tests.issuer import AUDIENCE, Issuer
from tests.messages import lag_event
from tests.service.pipelines import complete_pipeline_of
from tests.waiting import DEADLINE_S, eventually, holds

PAGE = Path(__file__).parents[3] / "docs" / "operator" / "single-sign-on.md"


def proxy_settings(folder: Path, **changed: object) -> Path:
    """The page's, with other values."""
    (block,) = re.findall(r"```ini\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for name, value in changed.items():
        block, count = re.subn(rf"^{name} = .*$", f"{name} = {value!r}", block, flags=re.MULTILINE)
        assert count == 1, name
    (folder / "client-secret").write_text("secret of the client")
    (folder / "cookie-secret").write_bytes(b"c" * 32)
    # A browser sends no secure cookie without TLS.
    (folder / "proxy.cfg").write_text(block.replace("'", '"') + "cookie_secure = false\n")
    return folder / "proxy.cfg"


@pytest.mark.slow
async def test_a_browser_that_logged_in_at_the_issuer_sees_its_queries(tmp_path: Path) -> None:
    program = await asyncio.to_thread(oauth2_proxy, lambda text: None)
    with Issuer() as issuer, bind("127.0.0.1", 0) as listening:
        issuer.claims_of_login = {"email": "a@b.example", "groups": ["team-a"]}
        grants = {"team-a": HttpGrantSettings(scopes=["lag", "admin"], queries=["team-a-.*"])}
        accepted = HttpJwtSettings(
            issuer=issuer.url, audiences=[AUDIENCE], claim="groups", grants=grants
        )
        hosts = ["lag.example.com"]
        pipeline = complete_pipeline_of(Settings(http_jwt=accepted, http_hosts=hosts))
        for query_id, query in (("a1", "team-a-orders"), ("b1", "team-b-bills")):
            event = lag_event(query_id=query_id, query=query, status="FAILED")
            pipeline.view.put(Entry(event, encode(event), 0, 0, 0))
        server = HttpServer(InstanceState(pipeline))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        await holds(lambda: server.started, "it serves")
        port = free_port()
        settings = proxy_settings(
            tmp_path,
            http_address=f"127.0.0.1:{port}",
            upstreams=[f"http://127.0.0.1:{listening.getsockname()[1]}/"],
            oidc_issuer_url=issuer.url,
            redirect_url=f"http://lag.example.com:{port}/oauth2/callback",
        )
        proxy = ChildProcess(
            "oauth2-proxy",
            [str(program), "--config", str(settings)],
            log_path=tmp_path / "log",
            directory=tmp_path,
        )
        proxy.start()
        try:
            await check(f"http://127.0.0.1:{port}", proxy)
        finally:
            proxy.stop()
            server.should_exit = True
            await serving


async def check(proxy_url: str, proxy: ChildProcess) -> None:
    name = f"lag.example.com:{urlsplit(proxy_url).port}"
    headers, origin = {"host": name}, f"http://{name}"
    async with httpx.AsyncClient(timeout=DEADLINE_S, base_url=proxy_url, headers=headers) as http:

        async def is_up() -> bool:
            assert proxy.is_alive(), proxy.describe_end()
            try:
                return (await http.get("/ping")).status_code == 200
            except httpx.TransportError:
                return False

        await eventually(is_up, "oauth2-proxy is up")
        login = await http.get("/lag")
        assert login.status_code == 302
        back = await http.get(login.headers["location"], headers={"host": "issuer"})
        logged_in = await http.get(
            back.headers["location"].removeprefix(origin),
            headers={"cookie": cookies_of(login)},
        )
        assert logged_in.status_code == 302, logged_in.text
        headers["cookie"] = cookies_of(logged_in)
        seen = await http.get("/lag", headers=headers)
        assert [query["query"] for query in seen.json()["queries"]] == ["team-a-orders"]
        assert (await http.get("/metrics", headers=headers)).status_code == 403
        foreign = {**headers, "origin": "https://evil.example", "sec-fetch-site": "cross-site"}
        refused = await http.delete("/lag/a1", headers=foreign)
        assert "a page of another origin" in refused.text
        own = {**headers, "origin": origin, "sec-fetch-site": "same-origin"}
        # Kafka is not there.
        assert (await http.delete("/lag/a1", headers=own)).status_code == 503


def cookies_of(answer: httpx.Response) -> str:
    cookies = answer.headers.get_list("set-cookie")
    return "; ".join(cookie.partition(";")[0] for cookie in cookies)
