"""Offsets are committed up to the first that is not done."""

from __future__ import annotations

import random

from sparklag_service.intakes.topic_messages import CommitLedger


def test_what_was_committed_is_not_committed_again() -> None:
    ledger = CommitLedger()
    ledger.take(4)
    ledger.done(4)
    ledger.committed = 5
    assert ledger.to_commit is None


def test_in_any_order_the_commit_is_the_first_open_offset() -> None:
    dice = random.Random(5)
    for _ in range(200):
        # With holes: compaction and transactions leave some.
        offsets = sorted(dice.sample(range(100), 20))
        ledger = CommitLedger()
        for offset in offsets:
            ledger.take(offset)
        still_open = set(offsets)
        for offset in dice.sample(offsets, len(offsets)):
            ledger.done(offset)
            still_open.discard(offset)
            first_open = min(still_open, default=offsets[-1] + 1)
            before = [o for o in offsets if o < first_open]
            assert ledger.to_commit == (before[-1] + 1 if before else None)
