"""The service in simulated hours: nothing of what must hold is violated."""

from __future__ import annotations

import os
import sys

import pytest

from tests.commands import succeed
from tests.simulation.hand_overs import HandOvers
from tests.simulation.invariants import Violation
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.world import simulate

pytestmark = pytest.mark.simulation

_HOURS = 4.0
_SEEDS = 25
_FIRST = (1, *(pytest.param(1 + n * _SEEDS, marks=pytest.mark.slow) for n in range(1, 10)))


def test_a_seed_is_replayed_exactly() -> None:
    program = (sys.executable, "-m", "tests.simulation", "7", "--hours", "1")
    digests = {
        succeed(*program, env={**os.environ, "PYTHONHASHSEED": hash_seed})
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1
    assert digests.pop().startswith("seed 7: ")


@pytest.mark.parametrize("first", _FIRST)
def test_nothing_is_lost_or_wrong(first: int) -> None:
    for seed in range(first, first + _SEEDS):
        simulate(seed, _HOURS)


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3))])
def test_a_hand_over_clears_no_alarm(seed: int) -> None:
    assert simulate(seed, 1.5, kind=HandOvers).hand_overs >= 100


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(each, id=each.name, marks=[pytest.mark.slow] if each.seed > _SEEDS else [])
        for each in MUTANTS
    ],
)
def test_a_fault_is_detected(mutant: Mutant) -> None:
    # Without the fault the same hours pass: they are part of those above.
    assert mutant.seed <= _SEEDS * len(_FIRST)
    with mutant.in_place(), pytest.raises(Violation):
        simulate(mutant.seed, _HOURS, kind=mutant.kind)
