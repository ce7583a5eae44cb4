"""What a reader accepts: the format, and whether compressed."""

from __future__ import annotations

from typing import Final, NamedTuple

OPEN_METRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class _Accepted(NamedTuple):
    value: str
    parameters: dict[str, str]

    @property
    def quality(self) -> float:
        """0 to 1. What cannot be read is not accepted."""
        try:
            return float(self.parameters.get("q", "1"))
        except ValueError:
            return 0.0


def wants_open_metrics(accept: str) -> bool:
    """Whether OpenMetrics is accepted, and no text format more gladly."""
    accepted = _accepted(accept)
    open_metrics = [
        each.quality
        for each in accepted
        if each.value == "application/openmetrics-text"
        and each.parameters.get("version", "1.0.0") in ("0.0.1", "1.0.0")
    ]
    text = [each.quality for each in accepted if each.value in ("text/plain", "text/*", "*/*")]
    return max(open_metrics, default=0.0) > 0 and max(open_metrics) >= max(text, default=0.0)


def wants_gzip(accept_encoding: str) -> bool:
    """Whether gzip is accepted."""
    by_name = {each.value: each.quality for each in _accepted(accept_encoding)}
    return by_name.get("gzip", by_name.get("*", 0.0)) > 0


def _accepted(header: str) -> list[_Accepted]:
    found = []
    for part in header.lower().split(","):
        value, *parameters = (piece.strip() for piece in part.split(";"))
        named = (parameter.partition("=") for parameter in parameters)
        found.append(
            _Accepted(value, {name.strip(): given.strip(' "') for name, _, given in named})
        )
    return found
