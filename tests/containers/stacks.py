"""What holds for every stack."""

from __future__ import annotations

from typing import Any

from tests.containers.docker import compose, inspect
from tests.end_to_end import answer
from tests.waiting import wait_for


def lag_of_orders(port: str) -> dict[str, Any]:
    event: dict[str, Any] = {}

    def is_known() -> bool:
        event.update(answer(f"http://127.0.0.1:{port}/lag/orders") or {})
        return event.get("total_lag") is not None

    wait_for(is_known, "the lag of the query is known")
    return event


def require_hardened(*services: str) -> None:
    for service in services:
        container = inspect(compose("ps", "-q", service, profile="*").strip())
        host = container["HostConfig"]
        assert host["CapDrop"] == ["ALL"], service
        assert host["SecurityOpt"] == ["no-new-privileges:true"], service
        assert container["Config"]["User"] not in ("", "0", "root"), service
        # Kafka's image writes its configuration beside the program.
        assert host["ReadonlyRootfs"] is not service.startswith("kafka"), service
        assert container["State"]["Running"] is True, service
