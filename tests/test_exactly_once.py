"""Results and offsets in one transaction: the example, on a real broker and real Spark."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.exactly_once import ExactlyOnce
from tests.second_client import SecondClient


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.slow
def test_every_record_is_there_once_after_a_kill(
    second_client: SecondClient, topic_name: str, tmp_path: Path
) -> None:
    seed = random.randrange(1_000_000)
    example = ExactlyOnce(
        second_client,
        second_client.create(topic_name, 3),
        f"sqlite:///{tmp_path}/results.db",
        tmp_path,
        random.Random(seed),
    )
    example.survive(kills=1)
    example.check()
