"""Survivors of a collection are examined again only once there are twice as many objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping

import pytest

from sparklag_schemas.runtime.garbage_collection import SurvivorsFrozen
from tests.scripts import run_script


@pytest.fixture
def frozen() -> Iterator[None]:
    """The callback of the service, removed after the test."""
    thresholds = gc.get_threshold()
    callback = SurvivorsFrozen()
    gc.callbacks.append(callback)
    yield
    gc.callbacks.remove(callback)
    gc.unfreeze()
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("frozen")
def test_a_collection_examines_few_objects_of_many() -> None:
    gc.collect()
    examined = []

    def look(phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            examined.append(len(gc.get_objects()))

    gc.callbacks.append(look)
    try:
        held = [[number] for number in range(200_000)]
    finally:
        gc.callbacks.remove(look)
    assert len(examined) >= 5
    assert max(examined) < 20_000 < len(held)


def test_survivors_are_examined_again_once_there_are_twice_as_many() -> None:
    # A process of its own, since the objects of all tests are millions.
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
        reference = weakref.ref(cycle)
        del cycle
        gc.collect()
        assert reference() is not None
        held = [[number] for number in range(2 * gc.get_freeze_count())]
        # The first counts, the second looks.
        gc.collect()
        gc.collect()
        assert reference() is None
        """
    )
    assert ended.exit_code == 0, ended.errors
