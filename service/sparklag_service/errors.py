"""The errors of this package. Each is a ServiceError."""

from __future__ import annotations

from sparklag_schemas import SparklagError


class ServiceError(SparklagError):
    """The service cannot do what was requested; the text gives the reason."""


class PortInUse(ServiceError):
    """The HTTP port is taken."""


class RequestRefused(ServiceError):
    """A running service answers with a problem document; `kind` ends its `type`."""

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.kind = kind


class ReadingInterrupted(ServiceError):
    """A topic must be read from its start: it was deleted, or this process was suspended."""
