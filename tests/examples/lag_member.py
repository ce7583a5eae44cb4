"""`examples/lag_consumer.py` with work that can be counted, until it is ended.

Arguments: bootstrap servers, topic, group, this member's name, a folder. What it does becomes a
line of the file `work` there; while there is a file `<name>.hangs`, it hangs in an event.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import lag_consumer
from sparklag_schemas import LagEvent, Settings
from tests.waiting import holds

# Little, because the test waits for it; enough for a member on a busy machine to keep its session.
lag_consumer.SESSION_TIMEOUT_MS = 10_000
WORK_S = 0.01


async def main() -> None:
    servers, topic, group, name, folder = sys.argv[1:]

    def note(what: str) -> None:
        # Each in one write: lines of several processes do not mix.
        with Path(folder, "work").open("a") as work:
            work.write(f"{name} {what}\n")

    def hangs() -> bool:
        return Path(folder, f"{name}.hangs").exists()

    async def handle(event: LagEvent, before: LagEvent | None) -> None:
        await asyncio.sleep(WORK_S)
        note(event.event_id)
        await holds(lambda: not hangs(), "the work goes on")

    async def forget(query_id: str) -> None:
        note(f"{query_id}/forgotten")

    settings = Settings(bootstrap_servers=servers, lag_topic=topic)
    await lag_consumer.LagMember(settings, group, handle, forget).run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    asyncio.run(main())
