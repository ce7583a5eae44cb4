"""The REST interface without a socket."""

from __future__ import annotations

import httpx

from sparklag_service.instance_state import InstanceState
from sparklag_service.pipeline import Pipeline
from sparklag_service.rest.app import create_app


def rest_client(
    instance: InstanceState | Pipeline, address: str = "127.0.0.1"
) -> httpx.AsyncClient:
    state = InstanceState(instance) if isinstance(instance, Pipeline) else instance
    transport = httpx.ASGITransport(create_app(state), client=(address, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://sparklag")


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}
