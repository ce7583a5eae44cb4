"""How much is read, and what is not read again soon."""

from __future__ import annotations

from sparklag_service.enrichment.record_times.limits import (
    ByteBudget,
    Postponed,
)


def test_a_budget_that_is_spent_is_there_again_at_its_rate() -> None:
    budget = ByteBudget(0.0, bytes_per_s=100, burst_bytes=300)
    assert budget.wait_s(0.0) == 0
    budget.spend(300, 0.0)
    assert budget.wait_s(0.0) == 0
    budget.spend(500, 0.0)
    assert budget.wait_s(0.0) == 5.0
    assert budget.wait_s(4.0) == 1.0
    assert budget.wait_s(5.0) == 0
    budget.spend(200, 1_000.0)
    assert budget.wait_s(1_000.0) == 0, "it saves, and no more than its burst"
    budget.spend(200, 1_000.0)
    assert budget.wait_s(1_000.0) == 1.0


def test_what_is_postponed_is_so_until_its_time() -> None:
    postponed = Postponed()
    assert not postponed.contains("orders", 10.0)
    postponed.add("orders", 3_600.0)
    postponed.add("orders", 70.0)
    postponed.tidy(60.0)
    assert postponed.contains("orders", 69.0)
    assert not postponed.contains("orders", 70.0)
    assert not postponed.contains("others", 69.0)
    postponed.tidy(70.0)
    assert not postponed.contains("orders", 10.0)


def test_only_so_many_are_remembered_the_newest_of_them() -> None:
    postponed = Postponed(max_keys=8)
    for number in range(100):
        postponed.add(number, 70.0)
    postponed.add(92, 80.0)
    assert [number for number in range(100) if postponed.contains(number, 20.0)] == [
        *range(92, 100)
    ]
    postponed.add(100, 70.0)
    assert postponed.contains(92, 20.0), "it was renewed"
    assert not postponed.contains(93, 20.0)
