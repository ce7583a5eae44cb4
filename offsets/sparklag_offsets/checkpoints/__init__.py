"""Reads Spark checkpoints: how far a query has read, and which batch it runs now."""

from sparklag_offsets.checkpoints.files import fixed_prefix, normal_location
from sparklag_offsets.checkpoints.position import CheckpointPosition, SourceLag, lag_of
from sparklag_offsets.checkpoints.reader import CheckpointReader
from sparklag_offsets.checkpoints.store import CheckpointStore, read_checkpoint

__all__ = [
    "CheckpointPosition",
    "CheckpointReader",
    "CheckpointStore",
    "SourceLag",
    "fixed_prefix",
    "lag_of",
    "normal_location",
    "read_checkpoint",
]
