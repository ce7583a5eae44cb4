"""What is started, and is to be gone afterwards whatever happens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TypeVar

_Self = TypeVar("_Self", bound="Startable")


class Startable(ABC):
    """A context manager: started on entry; closed on exit, and where it does not start."""

    @abstractmethod
    def start(self) -> None:
        """Return once it can be used."""

    @abstractmethod
    def close(self) -> None:
        """Stop it and remove what is its own. Idempotent."""

    def __enter__(self: _Self) -> _Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
