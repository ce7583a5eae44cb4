"""The service in simulated hours: nothing of what must hold is violated."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.invariants import Violation
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.world import simulate

_HOURS = 4.0
_SEEDS = 250
_PARTS = 10


@pytest.mark.simulation
def test_a_seed_is_replayed_exactly() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-m", "tests.simulation", "7", "--hours", "1"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2", "3")
    }
    assert len(digests) == 1
    assert digests.pop().startswith("seed 7: ")


@pytest.mark.simulation
@pytest.mark.parametrize("first", range(1, _SEEDS + 1, _SEEDS // _PARTS))
def test_nothing_is_lost_or_wrong(first: int) -> None:
    for seed in range(first, first + _SEEDS // _PARTS):
        simulate(seed, _HOURS)


@pytest.mark.simulation
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_fault_is_found(mutant: Mutant) -> None:
    # Without the fault the same hours pass: they are part of those above.
    assert mutant.seed <= _SEEDS
    with mutant.in_place(), pytest.raises(Violation):
        simulate(mutant.seed, _HOURS)
