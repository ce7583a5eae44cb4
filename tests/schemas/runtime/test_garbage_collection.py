"""What survives a collection is looked through again only once there is twice as much."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Mapping

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
    thresholds = gc.get_threshold()
    callback = SurvivorsFrozen()
    gc.callbacks.append(callback)
    yield
    gc.callbacks.remove(callback)
    gc.unfreeze()
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("frozen")
def test_survivors_are_not_looked_through_again() -> None:
    cycle = Cycle()
    gc.collect()
    seen = weakref.ref(cycle)
    del cycle
    gc.collect()
    assert seen() is not None


@pytest.mark.usefixtures("frozen")
def test_a_collection_looks_through_little() -> None:
    """However much there is, and is made."""
    gc.collect()
    looked_through = []

    def look(phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            looked_through.append(len(gc.get_objects()))

    gc.callbacks.append(look)
    try:
        held = [[number] for number in range(200_000)]
    finally:
        gc.callbacks.remove(look)
    assert len(looked_through) >= 5
    assert max(looked_through) < 20_000 < len(held)


@pytest.fixture
def checked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_collection, "_CHECK_S", 0.0)


@pytest.mark.usefixtures("checked_at_once", "frozen")
def test_twice_as_many_objects_are_looked_through() -> None:
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
