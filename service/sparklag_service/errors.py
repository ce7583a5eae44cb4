"""The errors of this package.

ServiceError
└── PortInUse
"""

from __future__ import annotations

from sparklag_schemas import SparklagError


class ServiceError(SparklagError):
    """The service cannot do what was asked; the text says why."""


class PortInUse(ServiceError):
    """The HTTP port is taken."""
