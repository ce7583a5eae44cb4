"""The records' partitions and rates, as properties."""

from __future__ import annotations

import random

import pytest

from sparklag_jobs.demo import invoices, payments
from sparklag_jobs.demo.orders import (
    HIGHEST_RATE,
    LOWEST_RATE,
    PERIOD_S,
    orders_per_second,
    random_order,
)
from sparklag_jobs.demo.record_stream import BUSIEST_CUSTOMER, CUSTOMERS, partition_of


def _some_customers(count: int) -> list[str]:
    chance = random.Random(7)
    return [chance.randbytes(chance.randint(1, 20)).hex() for _ in range(count)]


@pytest.mark.parametrize("count", [2, 3, 4, 7, 100])
def test_the_busiest_customer_is_alone_on_the_first_partition(count: int) -> None:
    assert partition_of(BUSIEST_CUSTOMER, count) == 0
    assert {partition_of(customer, count) for customer in _some_customers(2000)} == {
        *range(1, count)
    }


def test_the_others_share_the_rest_evenly() -> None:
    got = [partition_of(customer, 4) for customer in _some_customers(6000)]
    assert all(1800 < got.count(partition) < 2200 for partition in (1, 2, 3))
    assert {partition_of(name, 4) for name in CUSTOMERS} == {1, 2, 3}


def test_a_single_partition_is_everybodys() -> None:
    assert {partition_of(name, 1) for name in [BUSIEST_CUSTOMER, *_some_customers(50)]} == {0}


def test_another_process_with_another_hash_seed_agrees() -> None:
    assert [partition_of(name, 4) for name in CUSTOMERS[:6]] == [3, 2, 1, 3, 2, 1]


def test_the_rate_swings_between_its_ends_and_comes_again() -> None:
    times = [PERIOD_S * step / 97 for step in range(300)]
    assert all(LOWEST_RATE <= orders_per_second(time) <= HIGHEST_RATE + 1e-9 for time in times)
    assert orders_per_second(0) == pytest.approx(LOWEST_RATE)
    assert orders_per_second(PERIOD_S / 2) == pytest.approx(HIGHEST_RATE)
    for time in times:
        assert orders_per_second(time) == pytest.approx(orders_per_second(time + PERIOD_S))


def test_two_orders_in_five_are_the_busiest_customers() -> None:
    chance = random.Random(3)
    orders = [random_order(chance, number, 1) for number in range(5000)]
    share = sum(order.customer == BUSIEST_CUSTOMER for order in orders) / len(orders)
    assert 0.37 < share < 0.43
    assert len({order.order_id for order in orders}) == len(orders)


def test_payments_come_in_bursts_that_their_query_is_behind_in_and_makes_up_for() -> None:
    seconds = range(payments.PERIOD_S)
    come = [payments.payments_per_second(second) for second in seconds]
    capacity = payments.MAX_OFFSETS_PER_TRIGGER / payments.TRIGGER_S
    backlog = sum(rate - capacity for rate in come if rate > capacity)
    assert backlog > payments.MAX_LAG
    assert sum(come) < 0.8 * capacity * payments.PERIOD_S


def test_nearly_all_payments_are_in_one_partition() -> None:
    chance = random.Random(3)
    made = [payments.random_payment(chance, number, 1) for number in range(5000)]
    share = sum(payment.customer == BUSIEST_CUSTOMER for payment in made) / len(made)
    assert 0.88 < share < 0.92


def test_the_first_invalid_invoice_comes_within_half_a_minute_and_the_next_within_another() -> None:
    chance = random.Random(3)
    count = 75 * invoices.RATE
    made = [invoices.random_invoice(chance, number, 1) for number in range(count)]
    invalid = [number for number, invoice in enumerate(made) if invoice.amount_cents < 0]
    assert [number / invoices.RATE for number in invalid] == [20, 65]
