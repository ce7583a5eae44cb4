"""The records' partitions and rates, as properties."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import astuple

from sparklag_jobs.demo import streams
from sparklag_jobs.demo.streams import (
    BUSIEST_CUSTOMER,
    CUSTOMERS,
    HIGHEST_RATE,
    INVOICES,
    LOWEST_RATE,
    ORDERS,
    PAYMENTS,
    WAVE_S,
    RecordStream,
    orders_per_second,
    partition_of,
)


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
    times = [WAVE_S * step / 97 for step in range(300)]
    assert all(LOWEST_RATE <= orders_per_second(time) <= HIGHEST_RATE + 1e-9 for time in times)
    assert orders_per_second(0) == pytest.approx(LOWEST_RATE)
    assert orders_per_second(WAVE_S / 2) == pytest.approx(HIGHEST_RATE)
    for time in times:
        assert orders_per_second(time) == pytest.approx(orders_per_second(time + WAVE_S))


@pytest.mark.parametrize(
    ("stream", "lowest", "highest"), [(ORDERS, 0.37, 0.43), (PAYMENTS, 0.88, 0.92)]
)
def test_two_orders_in_five_and_nearly_all_payments_are_the_busiest_customers(
    stream: RecordStream, lowest: float, highest: float
) -> None:
    chance = random.Random(3)
    records = [stream.record(chance, number, 1) for number in range(5000)]
    share = sum(record.customer == BUSIEST_CUSTOMER for record in records) / len(records)
    assert lowest < share < highest
    assert len({astuple(record)[0] for record in records}) == len(records)


def test_payments_come_in_bursts_that_their_query_is_behind_in_and_makes_up_for() -> None:
    seconds = range(streams.BURST_PERIOD_S)
    come = [streams.payments_per_second(second) for second in seconds]
    capacity = streams.MAX_PAYMENTS_PER_TRIGGER / streams.PAYMENTS_TRIGGER_S
    backlog = sum(rate - capacity for rate in come if rate > capacity)
    assert backlog > streams.MAX_PAYMENTS_LAG
    assert sum(come) < 0.8 * capacity * streams.BURST_PERIOD_S


def test_the_first_invalid_invoice_comes_within_half_a_minute_and_the_next_within_another() -> None:
    chance = random.Random(3)
    count = 75 * streams.INVOICE_RATE
    made = [INVOICES.record(chance, number, 1) for number in range(count)]
    invalid = [number for number, invoice in enumerate(made) if invoice.amount_cents < 0]
    assert [number / streams.INVOICE_RATE for number in invalid] == [20, 65]
