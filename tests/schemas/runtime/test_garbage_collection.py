"""What survives a collection is looked through again only once there is twice as much."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping

import pytest

from sparklag_schemas.runtime.garbage_collection import SurvivorsFrozen
from tests.scripts import run_script


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


def test_survivors_are_looked_through_again_only_once_there_is_twice_as_much() -> None:
    """In a process of its own: the objects of all tests are millions."""
    ended = run_script(
        """
        import gc, weakref
        from sparklag_schemas.runtime import garbage_collection

        class Cycle:
            def __init__(self):
                self.itself = self

        garbage_collection._CHECK_S = 0.0
        gc.callbacks.append(garbage_collection.SurvivorsFrozen())
        cycle = Cycle()
        gc.collect()
        seen = weakref.ref(cycle)
        del cycle
        gc.collect()
        assert seen() is not None
        held = [[number] for number in range(2 * gc.get_freeze_count())]
        # The first counts, the second looks.
        gc.collect()
        gc.collect()
        assert seen() is None
        """
    )
    assert ended.exit_code == 0, ended.errors
