"""Error codes in responses, as far as anything depends on one. Pure."""

from __future__ import annotations

from typing import Final

from aiokafka.errors import for_code

NONE: Final = 0
OFFSET_OUT_OF_RANGE: Final = 1
UNKNOWN_TOPIC: Final = 3
LEADER_NOT_AVAILABLE: Final = 5
NOT_LEADER: Final = 6
COORDINATOR_LOADING: Final = 14
COORDINATOR_NOT_AVAILABLE: Final = 15
NOT_COORDINATOR: Final = 16
INVALID_TOPIC: Final = 17
TOPIC_FORBIDDEN: Final = 29
GROUP_FORBIDDEN: Final = 30
UNKNOWN_GROUP: Final = 69


def error_name(code: int) -> str:
    """As aiokafka names it."""
    name: str = for_code(code).__name__
    return name


def is_metadata_stale(code: int) -> bool:
    """Whether the error means that the partition may have another leader, or be gone."""
    return bool(for_code(code).invalid_metadata)
