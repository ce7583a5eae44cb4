"""Decide by its lag how many workers a query needs: a sketch, to be completed with your rules.

It follows the query's live stream at sparklag's service, and needs nothing but Python:

python autoscaler.py http://sparklag:8085 orders --current 2 --most 12     # prints what it would do
  --command 'kubectl scale statefulset/spark-worker --replicas={n}'          # and does it
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import os
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
"""More workers do not help with the others: STALL, STOP and FAILED, for example, need a person."""
RETRY_S = 2.0
READ_TIMEOUT_S = 30.0
"""Every query is republished every 10 s."""


@dataclass(frozen=True)
class Rules:
    least: int = 1
    most: int = 12
    catch_up_s: float = 300.0
    """How soon the lag should be gone."""
    batch_s: float = 30.0
    """The input of so many seconds is not lag but the next batch."""
    aim: float = 0.8
    """How busy workers should be. Between the next two limits nothing changes."""
    too_busy: float = 1.0
    too_idle: float = 0.6
    settle_s: float = 120.0
    """How long after a change the rates are still the old ones."""
    down_after_s: float = 600.0
    """Fewer only after fewer were enough for so long: a removed worker's tasks run again."""


def desired(event: Event, current: int, rules: Rules) -> int:
    """How many workers the query needs, by this event alone. Pure.

    - Unknown values change nothing.
    - The required rate is the input rate and a share of the lag; the current workers can do
      `batch_rate`. The number of workers grows in proportion.
    - More workers do not help a query that keeps pace, nor one that is limited.
    - A partition is read by a single task: more workers than partitions are idle.
    """
    lag, input_rate, capacity = (
        event.get(name) for name in ("total_lag", "input_rate", "batch_rate")
    )
    if event["status"] not in RUNS or event.get("unknown_partitions"):
        return current
    if lag is None or input_rate is None:
        return current
    required_rate = input_rate + lag / rules.catch_up_s
    if required_rate and not capacity:
        return current
    load = required_rate / capacity if capacity else 0.0
    workers = math.ceil(current * load / rules.aim)
    keeps_pace = lag <= input_rate * rules.batch_s
    more_help = not (keeps_pace or is_limited(event, rules))
    if rules.too_idle <= load <= rules.too_busy or (workers > current and not more_help):
        workers = current
    partitions = sum(len(topic["partitions"]) for topic in event["topics"])
    return max(rules.least, min(workers, rules.most, partitions))


def is_limited(event: Event, rules: Rules) -> bool:
    """Whether it pauses between batches with more to read, because of `maxOffsetsPerTrigger`."""
    batch, rate, capacity = (event.get(name) for name in ("batch", "processed_rate", "batch_rate"))
    if not (batch and batch.get("rate_limited")) or rate is None or capacity is None:
        return False
    return bool(rate < rules.aim * capacity)


class Autoscaler:
    """Scales up at once, and down after a while. Its clock is the events' own."""

    def __init__(self, rules: Rules, current: int) -> None:
        self.rules = rules
        self.current = current
        self._settled_at = 0.0
        self._desired: deque[tuple[float, int]] = deque()

    def decide(self, event: Event) -> int:
        """How many workers there should be now."""
        now = event["measured_at"] / 1000
        if now < self._settled_at:
            return self.current
        workers = desired(event, self.current, self.rules)
        if workers > self.current:
            return workers
        self._desired.append((now, workers))
        long_enough = now - self._desired[0][0] >= self.rules.down_after_s
        while now - self._desired[0][0] > self.rules.down_after_s:
            self._desired.popleft()
        return max(workers for _, workers in self._desired) if long_enough else self.current

    def changed(self, to: int, event: Event) -> None:
        """Record that there are `to` workers now."""
        self.current = to
        self._settled_at = event["measured_at"] / 1000 + self.rules.settle_s
        self._desired.clear()


def follow(service: str, query: str) -> Iterator[Event]:
    """The query's events: the newest, then each as it comes, from any instance."""
    address = f"{service}/lag/{urllib.parse.quote(query, safe='')}/stream"
    while True:
        try:
            request = urllib.request.Request(address)
            if token := os.environ.get("SPARKLAG_TOKEN"):
                request.add_unredirected_header("Authorization", f"Bearer {token}")
            with urllib.request.urlopen(request, timeout=READ_TIMEOUT_S) as stream:
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
    """Whether the command succeeded."""
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
    parser.add_argument("--command", help="scales to {n} workers; without it nothing is changed")
    arguments = parser.parse_args()
    rules = Rules(least=arguments.least, most=arguments.most, catch_up_s=arguments.catch_up_s)
    scaler = Autoscaler(rules, arguments.current)
    for event in follow(arguments.service.rstrip("/"), arguments.query):
        workers = scaler.decide(event)
        if workers != scaler.current:
            print(
                f"{arguments.query}: {scaler.current} -> {workers} workers:"
                f" lag {event['total_lag']}, input {event['input_rate']}/s,"
                f" capacity {event.get('batch_rate')}/s",
                flush=True,
            )
            if apply(arguments.command, workers):
                scaler.changed(workers, event)


if __name__ == "__main__":
    main()
