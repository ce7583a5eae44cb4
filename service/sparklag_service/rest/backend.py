"""What the routes answer from."""

from __future__ import annotations

from typing import Protocol

from sparklag_schemas import LagEvent
from sparklag_service.history.history import History
from sparklag_service.live.hub import LiveHub
from sparklag_service.view.service_state import ServiceState


class Backend(ServiceState, Protocol):
    """The service's state, and the parts that only REST reads."""

    @property
    def live(self) -> LiveHub:
        """Of the live streams."""

    @property
    def history(self) -> History:
        """Totals over time."""

    async def forget(self, event: LagEvent) -> bool:
        """Have a query forgotten that nothing speaks of; whether its tombstone is acknowledged."""
