"""What of a cluster's groups cannot be read, or written, and why; each said once in the log, until
it ends."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from aiokafka.errors import for_code

from sparklag_schemas.printable import first_few

_log = logging.getLogger(__name__)

LOADING, NO_COORDINATOR, NOT_COORDINATOR, FORBIDDEN, NO_SUCH_GROUP = 14, 15, 16, 30, 69
_REASONS: Final[Mapping[int, str]] = {
    LOADING: "its coordinator is still loading what was committed",
    NO_COORDINATOR: "no broker coordinates it now",
    NOT_COORDINATOR: "its coordinator has moved",
    FORBIDDEN: "no right to describe it",
}


def error_text(code: int) -> str:
    """What a broker's error code says of a group."""
    return _REASONS.get(code) or f"Kafka says {for_code(code).__name__}"


class Failures:
    """Reasons by what fails: the cluster, a broker, a group. Each is one line, with the cluster.

    `whose` and `well` are words: what is read or written there, and how it is again.
    """

    def __init__(self, alias: str, whose: str = "groups", well: str = "can be read again") -> None:
        self.reasons: dict[str, str] = {}
        self.cluster = f"{whose} of {alias}"
        self._where = f"Kafka cluster {alias}"
        self._well = well

    def broker(self, node: int) -> str:
        """What fails when a broker does."""
        return f"{self.cluster}: broker {node}"

    def group(self, group: str) -> str:
        """What fails when a group does."""
        return f"{self.cluster}: group {group}"

    def begin(self, what: str, reason: str) -> None:
        """`what` fails, from now on or still."""
        if what not in self.reasons:
            _log.warning("%s: %s", self._where, reason)
        self.reasons[what] = f"{self._where}: {reason}"

    def begin_groups(self, reasons: Mapping[str, str]) -> None:
        """The same by group id: one line in the log for all that newly fail for one reason."""
        new: dict[str, list[str]] = {}
        for group, reason in reasons.items():
            if self.group(group) not in self.reasons:
                new.setdefault(reason, []).append(group)
            self.reasons[self.group(group)] = f"{self._where}: group {group}: {reason}"
        for reason, groups in new.items():
            _log.warning("%s: group %s: %s", self._where, first_few(sorted(groups)), reason)

    def end(self, what: str) -> None:
        """It fails no more."""
        if self.reasons.pop(what, None) is not None:
            _log.info("%s %s", what, self._well)

    def drop(self, *whats: str) -> None:
        """Nobody wants them any more."""
        for what in whats:
            self.reasons.pop(what, None)
