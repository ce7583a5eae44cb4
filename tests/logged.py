"""What our loggers logged: asyncio and the clients log more the slower the machine is."""

from __future__ import annotations

import logging

import pytest


def logged(caplog: pytest.LogCaptureFixture, level: int = logging.NOTSET) -> list[str]:
    """The messages of our loggers in order, of those from `level` on."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("sparklag") and record.levelno >= level
    ]
