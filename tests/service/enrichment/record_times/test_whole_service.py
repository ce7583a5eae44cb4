"""How old the first unprocessed record is, as a service says it that has just started."""

from __future__ import annotations

import pytest

from sparklag_schemas import TimeLagSettings
from sparklag_schemas.timestamps import epoch_ms
from tests.local_kafka import LocalKafka
from tests.messages import QUERY_ID, observation, position
from tests.second_client import SecondClient
from tests.service.conftest import running, settings_for
from tests.service.enrichment.record_times.sampling import write_batches
from tests.service.states import only

pytestmark = pytest.mark.kafka

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
        found = only(event).time_lag_s
        assert found is not None
        assert abs(found - (event.measured_at - written_ms) / 1000) <= 1.0
        assert event.max_time_lag_s == found
