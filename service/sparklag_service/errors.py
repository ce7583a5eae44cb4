"""The errors of this package.

ServiceError
├── PortInUse
└── ReadingInterrupted
"""

from __future__ import annotations

from sparklag_schemas import SparklagError


class ServiceError(SparklagError):
    """The service cannot do what was asked; the text says why."""


class PortInUse(ServiceError):
    """The HTTP port is taken."""


class ReadingInterrupted(ServiceError):
    """A topic must be read from anew: it was deleted, or this process stood still."""
