"""The time of the first unprocessed record, read from real logs."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._resource import ResourceType

from sparklag_schemas import TimeLagSettings
from sparklag_schemas.timestamps import epoch_ms
from tests.local_kafka import LocalKafka
from tests.logged import logged
from tests.messages import QUERY_ID, observation, position
from tests.second_client import SecondClient
from tests.secured_kafka import grant, login
from tests.service.conftest import running, settings_for
from tests.service.enrichment.sampling import first_times, sampling, standing, write_batches
from tests.service.second_broker import frozen, place, second_broker
from tests.service.states import only
from tests.waiting import wait_for

pytestmark = pytest.mark.kafka

NOW_MS = epoch_ms()
HOUR_MS = 3_600_000
T = NOW_MS - HOUR_MS
"""From here on the tests count."""


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_at_each_position_it_is_the_time_of_the_record_there(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str, codec: str | None
) -> None:
    second_client.create(topic_name, 30)
    times = [NOW_MS - HOUR_MS * (30 - number) for number in range(30)]
    some = [times[:10], times[10:11], times[11:]]
    servers = kafka.bootstrap_servers
    await write_batches(servers, topic_name, some, partitions=range(30), codec=codec)
    state = standing({topic_name: {number: number for number in range(30)}})
    async with sampling(servers) as sampled:
        await sampled.until(lambda: len(sampled.times()) == 30, "all are sampled", state)
        assert sampled.times() == {
            (topic_name, number): (number, times[number]) for number in range(30)
        }
        counts = sampled.record_times.counts
        assert counts.sampled == 30
        requests = counts.requests
        await sampled.checks(5, state)
        assert counts.requests == requests, "each position is requested once"
        assert (counts.failed, counts.unusable) == (0, 0)


async def test_where_the_broker_gives_the_time_it_is_that(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str
) -> None:
    second_client.create(topic_name, 2, message_timestamp_type="LogAppendTime")
    await write_batches(kafka.bootstrap_servers, topic_name, [[1, 2, 3]], partitions=[0, 1])
    positions = {0: 0, 1: 2}
    expected = await first_times(kafka.bootstrap_servers, topic_name, positions)
    assert min(expected.values()) > NOW_MS - 60_000
    async with sampling(kafka.bootstrap_servers) as sampled:
        state = standing({topic_name: positions})
        await sampled.until(lambda: len(sampled.times()) == 2, "both are sampled", state)
        assert {number: at for (_, number), (_, at) in sampled.times().items()} == expected


@pytest.mark.parametrize("time_ms", [0, NOW_MS // 1000], ids=["zero", "seconds"])
async def test_an_impossible_time_is_not_taken(kafka: LocalKafka, topic: str, time_ms: int) -> None:
    await write_batches(kafka.bootstrap_servers, topic, [[time_ms]])
    async with sampling(kafka.bootstrap_servers) as sampled:
        state = standing({topic: {0: 0}})
        counts = sampled.record_times.counts
        await sampled.until(lambda: counts.unusable == 1, "it is read", state)
        await sampled.checks(3, state)
        assert (sampled.times(), counts.requests, counts.sampled) == ({}, 1, 0)


async def test_large_batches_among_small_ones_are_read_too_but_not_beyond_a_bound(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str
) -> None:
    second_client.create(topic_name, 40, max_message_bytes="8000000")
    servers = kafka.bootstrap_servers
    small, large = range(0, 40, 4), range(1, 40, 4)
    await write_batches(servers, topic_name, [[T, T]], partitions=small)
    await write_batches(servers, topic_name, [[T + 3]], partitions=large, value=b"x" * 600_000)
    state = standing({topic_name: dict.fromkeys([*small, *large], 0)})
    async with sampling(servers) as sampled:
        await sampled.until(lambda: len(sampled.times()) == 20, "all are sampled", state)
        assert {n for (_, n), (_, at) in sampled.times().items() if at == T + 3} == {*large}
        read = sampled.record_times.counts.bytes_read
        assert read < 10 * 600_000 + 4_000_000


async def test_of_transactions_what_a_reader_gets_counts(kafka: LocalKafka, topic: str) -> None:
    servers = kafka.bootstrap_servers
    producer = AIOKafkaProducer(
        bootstrap_servers=servers, transactional_id=topic, transaction_timeout_ms=600_000
    )
    await producer.start()
    try:
        for time_ms, commits in ((10, True), (20, False), (30, False), (40, True), (50, None)):
            await producer.begin_transaction()
            for _ in range(2):
                await producer.send_and_wait(*(topic, b"x"), partition=0, timestamp_ms=T + time_ms)
            if commits is not None:
                await (producer.commit_transaction() if commits else producer.abort_transaction())
        # 0 1 committed, 3 4 and 6 7 aborted, 9 10 committed, a marker after each; 12 13 open.
        async with sampling(servers) as sampled:
            for committed in (False, True):
                level = "read_committed" if committed else "read_uncommitted"
                for position in range(14 if not committed else 11):
                    expected = await first_times(servers, topic, {0: position}, level)
                    state = standing(
                        *({topic: {0: position}}, f"{level}-{position}"), isolation_level=level
                    )
                    wanted = {(topic, 0): (position, expected[0])}
                    await sampled.finds(wanted, state)
                    sampled.forget()
            # The marker is all that is left for who waits for the end of the open one.
            state = standing({topic: {0: 11}}, "waits", isolation_level="read_committed")
            counts = sampled.record_times.counts
            await sampled.until(lambda: counts.nothing_there > 0, "there is no record yet", state)
            # The position before may be sampled once more.
            assert all(position < 11 for position, _ in sampled.times().values())
    finally:
        await producer.abort_transaction()
        await producer.stop()


async def test_one_whose_records_were_deleted_is_sampled_from_the_logs_start(
    kafka: LocalKafka, second_client: SecondClient, topic_name: str
) -> None:
    second_client.create(topic_name, 3)
    servers = kafka.bootstrap_servers
    await write_batches(servers, topic_name, [[T + n] for n in range(9)], partitions=range(3))
    async with sampling(servers, earliest_interval_s=0.1) as sampled:
        second_client.delete_records(topic_name, {0: 5, 1: 5})
        state = standing({topic_name: {0: 2, 1: 5, 2: 2}})
        times = {(topic_name, number): (at, T + at) for number, at in ((0, 5), (1, 5), (2, 2))}
        await sampled.finds(times, state)
        # Requested before the change was known.
        assert sampled.record_times.counts.out_of_range <= 1


@pytest.fixture(scope="module")
def cleaning_kafka() -> Iterator[LocalKafka]:
    """Its cleaner looks every 0.1 s."""
    with LocalKafka(properties={"log.cleaner.backoff.ms": "100"}) as broker:
        yield broker


async def test_compacted_records_are_skipped(cleaning_kafka: LocalKafka, topic_name: str) -> None:
    servers, client = (
        cleaning_kafka.bootstrap_servers,
        SecondClient(cleaning_kafka.bootstrap_servers),
    )
    client.create(
        topic_name,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        segment_bytes="1048576",
        max_compaction_lag_ms="100",
        segment_ms="100",
    )
    times = [NOW_MS - HOUR_MS + number * 1_000 for number in range(40)]
    for number in range(0, 40, 10):
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            batch = producer.create_batch()
            for record in range(number, number + 10):
                # Each key's last record stays: those of odd numbers, of which the last four too.
                key = b"%d" % (record if record % 4 == 3 else -1)
                batch.append(key=key, value=b"x", timestamp=times[record])
            await (await producer.send_batch(batch, topic_name, partition=0))
    left = [record for record in range(40) if record % 4 == 3]

    def cleaned() -> bool:
        # What is being written to is not cleaned.
        client.produce(topic_name, [b"x"], key=b"last", partition=0)
        offsets = {message.offset() for message in client.read_all(topic_name)}
        return not offsets & {0, 1, 2, 4, 5, 6, 8, 9, 10, 12}

    wait_for(cleaned, "the cleaner has been there")
    async with sampling(servers) as sampled:
        for position in range(30):
            expected = await first_times(servers, topic_name, {0: position})
            wanted = {(topic_name, 0): (position, expected[0])}
            if position < 28:
                following = next(record for record in left if record >= position)
                assert expected[0] == times[following]
            state = standing({topic_name: {0: position}}, f"at-{position}")
            await sampled.finds(wanted, state)
            sampled.forget()


async def test_a_frozen_leader_costs_only_its_own_partitions() -> None:
    with LocalKafka() as first, second_broker(first) as second_node:
        await place(first, {"here": [1], "there": [2]})
        servers = first.bootstrap_servers
        for topic in ("here", "there"):
            await write_batches(servers, topic, [[T + 7], [T + 8]])
        measured = standing({"here": {0: 2}, "there": {0: 2}}, "measured")
        behind = standing({"here": {0: 0}, "there": {0: 0}}, "behind")
        async with sampling(servers, measure_timeout_s=5.0) as sampled:
            await sampled.until(lambda: sampled.ends("there") == {0: 2}, "measured", measured)
            with frozen(second_node):
                await sampled.until(
                    lambda: sampled.times() == {("here", 0): (0, T + 7)}, "one is sampled", behind
                )
                counts = sampled.record_times.counts
                await sampled.until(lambda: counts.failed > 0, "the other failed", behind)
                assert sampled.times() == {("here", 0): (0, T + 7)}
            await sampled.until(lambda: len(sampled.times()) == 2, "both are", behind)


@pytest.mark.blocks_loop("the test writes to 2,000 partitions with a stock producer")
async def test_two_thousand_partitions_are_sampled_in_some_requests(
    second_client: SecondClient, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    second_client.create(topic_name, 2_000)
    servers = second_client.bootstrap_servers
    await write_batches(servers, topic_name, [[T + 7, T + 8]], partitions=range(2_000))
    # asyncio's debug mode reports what held the loop: the machine is slow, and so is that mode.
    caplog.set_level(logging.WARNING, "asyncio")
    state = standing({topic_name: dict.fromkeys(range(2_000), 0)})
    async with sampling(servers) as sampled:
        await sampled.until(lambda: len(sampled.times()) == 2_000, "all are sampled", state)
        assert set(sampled.times().values()) == {(0, T + 7)}
        counts = sampled.record_times.counts
        assert counts.requests <= 20
        assert counts.bytes_read < 2_000 * 400


AGE_S = 2 * 3_600


async def test_what_lags_since_before_the_service_started_has_its_age(
    kafka: LocalKafka, second_client: SecondClient, topic: str
) -> None:
    written_ms = epoch_ms() - AGE_S * 1_000
    batches = [[written_ms - 60_000], [written_ms], [epoch_ms()]]
    await write_batches(kafka.bootstrap_servers, topic, batches)
    settings = settings_for(
        kafka.bootstrap_servers,
        time_lag=TimeLagSettings(sample_interval_s=1.0),
        refresh_interval_s=0.2,
    )
    async with running(settings, second_client) as service:
        at = position({topic: {0: 1}})
        service.observe(observation(observed_at=epoch_ms(), sources=[at]))
        event = await service.shows(
            *(QUERY_ID, lambda event: only(event).time_lag_method == "sampled", "it is sampled")
        )
        result = only(event).time_lag_s
        assert result is not None
        assert abs(result - (event.measured_at - written_ms) / 1000) <= 1.0
        assert event.max_time_lag_s == result


async def test_a_topic_that_may_not_be_read_is_left_alone_and_reported_once(
    scram_kafka: LocalKafka, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    internal = SecondClient(scram_kafka.internal_servers)
    secret, open_topic = f"{topic_name}-secret", f"{topic_name}-open"
    for topic in (secret, open_topic):
        internal.create(topic, 3)
        grant(scram_kafka, ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
        await write_batches(
            scram_kafka.internal_servers, topic, [[epoch_ms()], [epoch_ms()]], partitions=range(3)
        )
    grant(scram_kafka, ResourceType.TOPIC, open_topic, AclOperation.READ)
    states = [
        standing({topic: dict.fromkeys(range(3), 0)}, topic) for topic in (secret, open_topic)
    ]
    caplog.set_level(logging.WARNING, "sparklag_service")
    async with sampling(scram_kafka.bootstrap_servers, kafka=login("sparklag")) as sampled:
        counts = sampled.record_times.counts
        await sampled.until(lambda: len(sampled.times()) == 3, "the open one is sampled", *states)
        await sampled.until(lambda: counts.forbidden == 1, "the other is refused", *states)
        requests = counts.requests
        await sampled.checks(5, *states)
        assert counts.requests == requests
        assert (counts.forbidden, counts.failed) == (1, 0)
        assert {topic for topic, _ in sampled.times()} == {open_topic}
        times = sampled.enricher.offsets["default"][secret].log_ends["read_uncommitted"]
        assert len(times) > 1, "its earlier ends are known"
    output = [line for line in logged(caplog) if secret in line]
    assert output == [
        f"Kafka cluster default: no right to read topic {secret}: the age of its records is"
        " estimated from log growth; to read it, allow Read, or set time_lag.sample = false"
    ]
    assert "right" not in output[0].replace("no right to read", "")
