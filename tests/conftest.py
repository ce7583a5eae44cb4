"""Fixtures every package's tests share."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest

from sparklag_pipeline.local_kafka import LocalKafka
from tests.hdfs_cluster import HdfsCluster
from tests.s3_server import S3Server
from tests.second_client import SecondClient


@pytest.fixture(scope="session")
def kafka() -> Iterator[LocalKafka]:
    """A real broker for the whole run. A test that stops or freezes one makes its own."""
    with LocalKafka() as broker:
        yield broker


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A name no other test uses. The topic is not created."""
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    return f"{test[:60]}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def second_client(kafka: LocalKafka) -> SecondClient:
    """The shared broker, seen by a client that is not ours."""
    return SecondClient(kafka.bootstrap_servers)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A real S3 server for the whole run, each test with a bucket of its own."""
    with S3Server() as server:
        yield server


@pytest.fixture(scope="session")
def hdfs() -> Iterator[HdfsCluster]:
    """A real HDFS for the whole run, each test with a folder of its own."""
    with HdfsCluster() as cluster:
        yield cluster
