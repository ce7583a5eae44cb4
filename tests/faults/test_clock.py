"""A process whose clock is stepped goes on as one whose clock the administrator set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.faults.clock import SteppedClock

PROGRAM = """
import asyncio, sys, threading, time
from datetime import datetime

async def main():
    began, began_s = time.monotonic(), time.time()
    for line in sys.stdin:
        await asyncio.sleep(0.2)
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0.1)
        except asyncio.TimeoutError:
            pass
        await asyncio.to_thread(time.sleep, 0.1)
        threading.Event().wait(0.1)
        wall = time.time() - began_s
        assert abs(datetime.now().timestamp() - began_s - wall) < 1
        print(round(wall - (time.monotonic() - began)), flush=True)

asyncio.run(main())
"""


def test_its_wall_clock_is_stepped_and_its_timers_go_on(
    stepped_clock: Path, tmp_path: Path
) -> None:
    clock = SteppedClock(stepped_clock, tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | clock.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        seen = []
        for step in (0, -3_600, 60):
            clock.step(step)
            process.stdin.write("\n")
            process.stdin.flush()
            seen.append(int(process.stdout.readline()))
        process.stdin.close()
    clock.close()

    assert seen == [0, -3_600, -3_540]
