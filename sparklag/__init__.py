"""Consumer lag for Spark Structured Streaming: one import for drivers and notebooks.

import sparklag

handle = sparklag.observe(spark)
sparklag.lag("orders").total_lag
spark.readStream.format("kafka").option("startingOffsets", sparklag.starting_offsets("orders"))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparklag.query_lag import lag
    from sparklag_listener import ObserverHandle, observe
    from sparklag_listener.stored_offsets import ending_offsets, starting_offsets

__all__ = ["ObserverHandle", "ending_offsets", "lag", "observe", "starting_offsets"]


def __getattr__(name: str) -> Any:
    # Imported by name: a program that needs one does not pay for the others.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module("sparklag.query_lag" if name == "lag" else "sparklag_listener")
    return getattr(module, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
