"""A checkpoint of the test's own, and the stores that need servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hdfs_cluster import HdfsCluster
from tests.s3_server import S3Server
from tests.service.checkpoints.folders import Checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """With metadata and empty logs."""
    return Checkpoint(tmp_path / "checkpoint")


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """One for the whole run, each test with a bucket of its own."""
    with S3Server() as server:
        yield server


@pytest.fixture(scope="session")
def hdfs() -> Iterator[HdfsCluster]:
    """One for the whole run, each test with a folder of its own."""
    with HdfsCluster() as cluster:
        yield cluster
