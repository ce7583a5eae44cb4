"""How much is tried at once by `make fuzz`, which goes on trying with other values."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile(
    "fuzz", max_examples=2_000, deadline=None, derandomize=False, print_blob=True
)
