"""One checkpoint, read once, and with all that can be wrong with it."""

from __future__ import annotations

import time
from typing import Final

from sparklag_offsets.checkpoints.position import CheckpointPosition
from sparklag_offsets.checkpoints.store import CheckpointStore

_AGAIN_S: Final = 0.2


def read_checkpoint(store: CheckpointStore, location: str) -> CheckpointPosition:
    """Where the query of this checkpoint is. Lists both logs; a file that is half written is given
    some tenths of a second. Blocking. Raises CheckpointError."""
    reader = store.reader(location)
    position = reader.look()
    while reader.is_waiting:
        time.sleep(_AGAIN_S)
        position = reader.look() or position
    assert position is not None
    reader.check_newest_commit()
    return position
