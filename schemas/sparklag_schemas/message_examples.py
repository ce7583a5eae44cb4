"""One example of each message, for the documents: what one batch of `make demo` had published."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from sparklag_schemas.headers import lag_event_headers, observation_headers
from sparklag_schemas.lag_event import LagEvent
from sparklag_schemas.observation import Observation

_FOLDER: Final = Path(__file__).parent / "examples"


def example(name: str) -> Observation | LagEvent:
    """Of the message of that name, out of the file in `examples/` that is named like it."""
    kind = {"Observation": Observation, "LagEvent": LagEvent}[name]
    stem = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    message: Observation | LagEvent = msgspec.json.decode(
        (_FOLDER / f"{stem}.json").read_bytes(), type=kind
    )
    return message


def example_value(name: str) -> dict[str, Any]:
    """It as JSON has it, with every field that the message has by now."""
    value: dict[str, Any] = msgspec.to_builtins(example(name), str_keys=True)
    return value


def example_headers(name: str) -> dict[str, str]:
    """What it is sent with."""
    message = example(name)
    headers = (
        lag_event_headers(message)
        if isinstance(message, LagEvent)
        else observation_headers(message)
    )
    return {header: value.decode() for header, value in headers}
