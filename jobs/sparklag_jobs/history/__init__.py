"""The history of lag: the events of `consumer-lag` as permanent tables, and rolled up by time."""

from __future__ import annotations
