"""The report on the history of lag: from rows of the roll-ups to a page. Pure but for `reading`."""

from __future__ import annotations
