"""How much may be read from a cluster for the times of records. Pure."""

from __future__ import annotations

from typing import Final

BYTES_PER_S: Final = 1024 * 1024
BURST_BYTES: Final = 8 * 1024 * 1024


class ByteBudget:
    """So much each second, and what was saved up to `burst_bytes`. Times are `time.monotonic()`.

    What is spent is known afterwards only, so it may be in debt.
    """

    def __init__(
        self, now_s: float, bytes_per_s: int = BYTES_PER_S, burst_bytes: int = BURST_BYTES
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._burst_bytes = burst_bytes
        self._left = float(burst_bytes)
        self._at_s = now_s

    def spend(self, size: int, now_s: float) -> None:
        """Take so many bytes off."""
        self._save(now_s)
        self._left -= size

    def wait_s(self, now_s: float) -> float:
        """Until something may be spent."""
        self._save(now_s)
        return max(0.0, -self._left / self._bytes_per_s)

    def _save(self, now_s: float) -> None:
        saved = self._left + (now_s - self._at_s) * self._bytes_per_s
        self._left = min(saved, self._burst_bytes)
        self._at_s = now_s
