"""Decide how many workers a query needs by its lag: a sketch, to be filled in with your rules.

It follows the query's live stream at sparklag's service, and needs nothing but Python:

python autoscaler.py http://sparklag:8085 orders --current 2 --most 12       # says what it would do
  --command 'kubectl scale statefulset/spark-worker --replicas={n}'          # and does it
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import shlex
import subprocess
import time
import urllib.parse
import urllib.request
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Event = dict[str, Any]  # docs/reference/lag_event.md

RUNS = ("OK", "WARN", "REWIND", "DATA_LOSS")
"""No number of workers mends the others: STALL, STOP and FAILED, say, are for a person."""
RETRY_S = 2.0
SILENCE_S = 30.0
"""A query is said anew every 10 s."""


@dataclass(frozen=True)
class Rules:
    least: int = 1
    most: int = 12
    catch_up_s: float = 300.0
    """How soon the lag is to be gone."""
    batch_s: float = 30.0
    """What came in so many seconds is no lag, but the next batch."""
    aim: float = 0.8
    """How busy workers are to be. Between the next two nothing changes."""
    too_busy: float = 1.0
    too_idle: float = 0.6
    settle_s: float = 120.0
    """After a change the rates are still those of before."""
    down_after_s: float = 600.0
    """Fewer only when all of so long asked for fewer: what a worker had begun is done again."""


def desired(event: Event, current: int, rules: Rules) -> int:
    """How many workers the query needs, by this event alone. Pure.

    - What is not known is no reason to change anything.
    - What there is to do a second is what comes, and a share of the lag; what can be done with
      the workers there are is `batch_rate`. Half as much again to do takes half as many again.
    - More do not help a query that keeps pace, nor one that is held to a limit.
    - A partition is read by one task: more workers than partitions have nothing to do.
    """
    lag, comes, can = (event.get(name) for name in ("total_lag", "input_rate", "batch_rate"))
    if event["status"] not in RUNS or event.get("unknown_partitions"):
        return current
    if lag is None or comes is None:
        return current
    to_do = comes + lag / rules.catch_up_s
    if to_do and not can:
        return current
    load = to_do / can if can else 0.0
    wanted = math.ceil(current * load / rules.aim)
    keeps_pace = lag <= comes * rules.batch_s
    more_help = not (keeps_pace or is_limited(event, rules))
    if rules.too_idle <= load <= rules.too_busy or (wanted > current and not more_help):
        wanted = current
    partitions = sum(len(topic["partitions"]) for topic in event["topics"])
    return max(rules.least, min(wanted, rules.most, partitions))


def is_limited(event: Event, rules: Rules) -> bool:
    """Whether it waits between its batches with more to read: for `maxOffsetsPerTrigger`."""
    batch, done, can = (event.get(name) for name in ("batch", "processed_rate", "batch_rate"))
    if not (batch and batch.get("rate_limited")) or done is None or can is None:
        return False
    return bool(done < rules.aim * can)


class Autoscaler:
    """Up at once, down when it has been asked for long enough. Its clock is the events' own."""

    def __init__(self, rules: Rules, current: int) -> None:
        self.rules = rules
        self.current = current
        self._settled_at = 0.0
        self._wishes: deque[tuple[float, int]] = deque()

    def decide(self, event: Event) -> int:
        """How many there should be now."""
        now = event["measured_at"] / 1000
        if now < self._settled_at:
            return self.current
        wish = desired(event, self.current, self.rules)
        if wish > self.current:
            return wish
        self._wishes.append((now, wish))
        long_enough = now - self._wishes[0][0] >= self.rules.down_after_s
        while now - self._wishes[0][0] > self.rules.down_after_s:
            self._wishes.popleft()
        return max(wish for _, wish in self._wishes) if long_enough else self.current

    def changed(self, to: int, event: Event) -> None:
        """There are so many now."""
        self.current = to
        self._settled_at = event["measured_at"] / 1000 + self.rules.settle_s
        self._wishes.clear()


def follow(service: str, query: str) -> Iterator[Event]:
    """The query's events: the newest, and each as it comes, at whatever instance answers."""
    address = f"{service}/lag/{urllib.parse.quote(query, safe='')}/stream"
    while True:
        try:
            with urllib.request.urlopen(address, timeout=SILENCE_S) as stream:
                kind = ""
                for line in stream:
                    field, _, value = line.decode().rstrip("\n").partition(": ")
                    if field == "event":
                        kind = value
                    elif field == "data" and kind == "lag":
                        yield json.loads(value)
        except (OSError, http.client.HTTPException) as error:
            print(f"{address}: {error}; trying again", flush=True)
        time.sleep(RETRY_S)


def apply(command: str | None, workers: int) -> bool:
    """Whether it is done."""
    if command is None:
        return True
    done = subprocess.run(shlex.split(command.replace("{n}", str(workers))), check=False)
    return done.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description="Decide how many workers a query needs.")
    parser.add_argument("service", help="http://host:8085")
    parser.add_argument("query", help="name or id")
    parser.add_argument("--current", type=int, required=True, help="workers there are now")
    parser.add_argument("--least", type=int, default=Rules.least)
    parser.add_argument("--most", type=int, default=Rules.most)
    parser.add_argument("--catch-up-s", type=float, default=Rules.catch_up_s)
    parser.add_argument("--command", help="makes it so: {n} is the number; none: only say it")
    told = parser.parse_args()
    rules = Rules(least=told.least, most=told.most, catch_up_s=told.catch_up_s)
    scaler = Autoscaler(rules, told.current)
    for event in follow(told.service.rstrip("/"), told.query):
        workers = scaler.decide(event)
        if workers != scaler.current:
            print(
                f"{told.query}: {scaler.current} -> {workers} workers:"
                f" {event['total_lag']} behind, {event['input_rate']} a second come,"
                f" {event.get('batch_rate')} can be done",
                flush=True,
            )
            if apply(told.command, workers):
                scaler.changed(workers, event)


if __name__ == "__main__":
    main()
