"""How long is tried: `make test` a moment, `make fuzz` for minutes."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("fuzz", max_examples=20_000, deadline=None, print_blob=True)
