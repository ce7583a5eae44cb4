"""The report on the history of lag: from rows of the roll-ups to a page."""

from __future__ import annotations
