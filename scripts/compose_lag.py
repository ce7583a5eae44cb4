"""Waits for a query's lag: compose_lag.py <address of GET /lag/QUERY> <bootstrap servers>.

Shows it over REST and reads one event from `consumer-lag`; exits 1 where either does not come.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.error
import urllib.request
from typing import Any

from aiokafka import AIOKafkaConsumer

DEADLINE_S = 90.0


def wait_for_lag(url: str) -> dict[str, Any]:
    """The first response with a known lag. Raises TimeoutError with the last response."""
    deadline = time.monotonic() + DEADLINE_S
    last = "nothing"
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                event: dict[str, Any] = json.load(response)
            if event["total_lag"] is not None:
                return event
            last = json.dumps(event)
        except (urllib.error.URLError, ConnectionError) as error:
            last = str(error)
        time.sleep(0.5)
    raise TimeoutError(f"{url} returned {last}")


async def read_event(bootstrap_servers: str, query_id: str) -> dict[str, Any]:
    """One event of that query from `consumer-lag`. Raises TimeoutError."""
    consumer = AIOKafkaConsumer(
        "consumer-lag", bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest"
    )
    async with consumer:

        async def first() -> dict[str, Any]:
            async for message in consumer:
                if message.key.decode() == query_id and message.value is not None:
                    event: dict[str, Any] = json.loads(message.value)
                    return event
            raise AssertionError("a consumer's stream does not end")

        return await asyncio.wait_for(first(), DEADLINE_S)


def main() -> int:
    url, bootstrap_servers = sys.argv[1:]
    try:
        response = wait_for_lag(url)
        event = asyncio.run(read_event(bootstrap_servers, response["query_id"]))
    except (TimeoutError, asyncio.TimeoutError) as error:
        sys.stderr.write(f"{str(error) or 'no event on consumer-lag'}\n")
        return 1
    sys.stderr.write(
        f"compose-test: {url} returns {response['total_lag']} records ({response['status']}),"
        f" consumer-lag has event {event['event_id']}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
