"""What a checkpoint says of its query: how far it has read, and what it reads now."""

from sparklag_offsets.checkpoints.location import (
    fixed_prefix,
    normal_location,
)
from sparklag_offsets.checkpoints.position import CheckpointPosition, SourceOffsets
from sparklag_offsets.checkpoints.reader import CheckpointReader
from sparklag_offsets.checkpoints.single_look import read_checkpoint
from sparklag_offsets.checkpoints.store import CheckpointStore

__all__ = [
    "CheckpointPosition",
    "CheckpointReader",
    "CheckpointStore",
    "SourceOffsets",
    "fixed_prefix",
    "normal_location",
    "read_checkpoint",
]
