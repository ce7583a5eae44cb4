"""A service that measures too late says so, on a real broker that answers nothing for a while."""

from __future__ import annotations

import pytest

from tests.local_kafka import LocalKafka
from tests.messages import query_id_in, seen
from tests.second_client import SecondClient
from tests.service.conftest import running, settings_for
from tests.service.rest_client import rest_client
from tests.waiting import eventually

pytestmark = pytest.mark.kafka


async def test_a_lag_is_unknown_while_it_is_measured_too_late() -> None:
    with LocalKafka() as kafka:
        client = SecondClient(kafka.bootstrap_servers)
        topic = client.create("orders")
        settings = settings_for(kafka.bootstrap_servers, heartbeat_s=1.0)
        async with running(settings, client) as service, rest_client(service.state) as http:
            service.pipeline.view.late_after_s = settings.silent_after_s

            async def status() -> str:
                return str((await http.get("/lag/orders")).json()["status"])

            async def is_ok() -> bool:
                return await status() == "OK" and "measuring" not in service.state.not_ready()

            service.observe(seen(topic, {0: 0}))
            await eventually(is_ok, "it is measured")
            kafka.freeze()
            try:

                async def is_late() -> bool:
                    return await status() == "UNKNOWN" and "measuring" in service.state.not_ready()

                await eventually(is_late, "it is measured no more")
                event = (await http.get("/lag/orders")).json()
                assert event["reason"].startswith("last measured ")
                assert (await http.get("/lag?status=unknown")).json()["queries"][0]["reason"]
                assert 'query_id="' in (await http.get("/metrics")).text
            finally:
                kafka.thaw()


async def test_two_services_on_one_lag_topic_name_each_other(
    kafka: LocalKafka, second_client: SecondClient, topic: str
) -> None:
    settings = settings_for(kafka.bootstrap_servers, heartbeat_s=1.0)
    other = settings_for(
        kafka.bootstrap_servers,
        heartbeat_s=1.0,
        lag_topic=settings.lag_topic,
        offsets_topic=settings.offsets_topic,
        group_id="a/other",
    )
    async with running(settings, second_client) as one, running(other, second_client) as two:
        query = seen(topic, {0: 0}, query_id=query_id_in(0, settings.topic_partitions))
        one.observe(query)

        async def both_say_so() -> bool:
            said = [service.state.degraded().get("lag topic", "") for service in (one, two)]
            return "group a/other writes" in said[0] and settings.group_id in said[1]

        await eventually(both_say_so, "each has read the other's events")
