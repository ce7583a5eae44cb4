"""The orders' partitions and rates, as properties."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from sparklag_pipeline.demo.orders import (
    BUSIEST_CUSTOMER,
    CUSTOMERS,
    OrderPartitioner,
    RateWave,
    random_order,
)

BUSIEST = BUSIEST_CUSTOMER.encode()


def _some_keys(count: int) -> list[bytes]:
    chance = random.Random(7)
    return [chance.randbytes(chance.randint(1, 40)) for _ in range(count)]


@pytest.mark.parametrize("count", [2, 3, 4, 7, 100])
def test_the_busiest_customer_is_alone_on_the_first_partition(count: int) -> None:
    partitioner = OrderPartitioner()
    partitions = list(range(count))

    assert partitioner(BUSIEST, partitions, partitions) == 0
    assert all(partitioner(key, partitions, partitions) != 0 for key in _some_keys(2000))


def test_one_key_has_one_partition_whatever_is_available() -> None:
    partitioner, chance = OrderPartitioner(), random.Random(1)
    partitions = [0, 1, 2, 3]
    for key in [BUSIEST, *_some_keys(500)]:
        seen = {
            partitioner(key, partitions, chance.sample(partitions, chance.randint(0, 4)))
            for _ in range(5)
        }
        assert len(seen) == 1
        assert seen <= set(partitions)


def test_the_others_share_the_rest_evenly() -> None:
    partitioner = OrderPartitioner()
    got = [partitioner(key, [0, 1, 2, 3], []) for key in _some_keys(6000)]

    assert all(1800 < got.count(partition) < 2200 for partition in (1, 2, 3))
    assert {partitioner(name.encode(), [0, 1, 2, 3], []) for name in CUSTOMERS} == {1, 2, 3}


def test_a_single_partition_is_everybodys() -> None:
    assert {OrderPartitioner()(key, [0], [0]) for key in [BUSIEST, *_some_keys(50)]} == {0}


def test_another_process_with_another_hash_seed_agrees() -> None:
    keys = [name.encode() for name in CUSTOMERS]
    program = (
        "from sparklag_pipeline.demo.orders import *;"
        "print([OrderPartitioner()(name.encode(), [0, 1, 2, 3], []) for name in CUSTOMERS])"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {program}"],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert said == {str([OrderPartitioner()(key, [0, 1, 2, 3], []) for key in keys])}


@pytest.mark.parametrize("wave", [RateWave(100, 3000, 40), RateWave(0, 5, 7), RateWave(9, 9, 1)])
def test_the_wave_swings_between_its_ends_and_comes_again(wave: RateWave) -> None:
    moments = [wave.period_s * step / 97 for step in range(300)]

    assert all(wave.low - 1e-9 <= wave.rate(moment) <= wave.high + 1e-9 for moment in moments)
    assert wave.rate(0) == pytest.approx(wave.low)
    assert wave.rate(wave.period_s / 2) == pytest.approx(wave.high)
    for moment in moments:
        assert wave.rate(moment) == pytest.approx(wave.rate(moment + wave.period_s))


def test_what_is_due_is_the_sum_of_the_rates() -> None:
    wave, step = RateWave(100, 3000, 40), 0.01
    summed = 0.0
    for tick in range(6000):
        summed += wave.rate((tick + 0.5) * step) * step
    assert wave.records_until(60) == pytest.approx(summed, rel=1e-6)
    assert wave.records_until(0) == 0


def test_two_orders_in_five_are_the_busiest_customers() -> None:
    chance = random.Random(3)
    orders = [random_order(chance, number=number, now_ms=1) for number in range(5000)]

    share = sum(order.customer == BUSIEST_CUSTOMER for order in orders) / len(orders)
    assert 0.37 < share < 0.43
    assert len({order.order_id for order in orders}) == len(orders)
