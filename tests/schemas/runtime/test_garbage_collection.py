"""What survives a full collection is looked through again only once there is twice as much."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from sparklag_schemas.runtime import garbage_collection
from sparklag_schemas.runtime.garbage_collection import SurvivorsFrozen


class Cycle:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def frozen() -> Iterator[None]:
    """Installed as in the service, and taken away."""
    callback = SurvivorsFrozen()
    gc.callbacks.append(callback)
    yield
    gc.callbacks.remove(callback)
    gc.unfreeze()


@pytest.mark.usefixtures("frozen")
def test_survivors_are_not_looked_through_again() -> None:
    cycle = Cycle()
    gc.collect()
    seen = weakref.ref(cycle)
    del cycle
    gc.collect()
    assert seen() is not None


def test_twice_as_many_objects_are_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_collection, "_CHECK_S", 0.0)
    callback = SurvivorsFrozen()
    gc.callbacks.append(callback)
    try:
        cycle = Cycle()
        gc.collect()
        seen = weakref.ref(cycle)
        del cycle
        held = [[number] for number in range(2 * gc.get_freeze_count())]
        # The first counts, the second looks.
        gc.collect()
        gc.collect()
        assert seen() is None
        assert held
    finally:
        gc.callbacks.remove(callback)
        gc.unfreeze()
