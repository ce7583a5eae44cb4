"""The history of lag: what `consumer-lag` said, as tables that stay, and rolled up by time."""

from __future__ import annotations
