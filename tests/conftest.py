"""Fixtures every package's tests share."""

from __future__ import annotations

import faulthandler
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TypeVar

import hypothesis
import pytest

from tests.certificates import Certificates, make_certificates
from tests.databases.mariadb import MariaDBServer
from tests.databases.mongo_protocol import MongoProtocolServer
from tests.databases.postgresql import PostgreSQLServer
from tests.databases.server import DatabaseServer
from tests.debian_packages import ProgramsMissing
from tests.deploy.programs import Programs, prometheus_programs
from tests.hdfs_cluster import HdfsCluster
from tests.local_kafka import LocalKafka
from tests.loop_guard import blocking_steps
from tests.s3_server import S3Server
from tests.schema_registry import SchemaRegistryServer
from tests.second_client import SecondClient
from tests.spark_configuration import pyspark_environment

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile(
    "tests", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("tests")

# Every Spark that a test starts, in its own process or another, begins with these settings.
os.environ.pop("SPARK_CONF_DIR", None)
os.environ.update(pyspark_environment())

TEARDOWN_S = 300.0
"""Twice what ending all the parts takes on a slow machine."""

_Server = TypeVar("_Server", bound=DatabaseServer)
_stderr = pytest.StashKey[int]()


_LONGEST_FIRST = (
    "tests/simulation/",
    "tests/lanes/",
    "tests/faults/",
    "tests/pipeline/history/",
    "tests/listener/test_driver_endings.py",
    "tests/listener/test_connect.py",
    "tests/service/intakes/test_group_faults.py",
    "tests/test_exactly_once.py",
    "tests/test_document_blocks.py",
    "tests/pipeline/demo/test_demo.py",
    "tests/deploy/test_alarm_chain.py",
    "tests/examples/",
)
"""Files and folders of tests: begun last, one would keep its worker long after the others end."""


class FailureLines:
    """Prints each failure in a line as it comes: a run that is cut short prints no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        crash = getattr(report.longrepr, "reprcrash", None)
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if crash is not None and terminal is not None:
            terminal.write_line(f" {report.nodeid}: {crash}"[:1000])


def pytest_configure(config: pytest.Config) -> None:
    # What is dumped must not go where a test's output is kept.
    config.stash[_stderr] = os.dup(2)
    config.pluginmanager.register(FailureLines(config))


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_stderr])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_begins)


def _begins(item: pytest.Item) -> int:
    """Its place in the order of files."""
    for place, path in enumerate(_LONGEST_FIRST):
        if item.nodeid.startswith(path):
            return place
    return len(_LONGEST_FIRST)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """End the run with all threads' stacks where it hangs here: pytest-timeout looks no longer
    once a test has failed."""
    faulthandler.dump_traceback_later(TEARDOWN_S, exit=True, file=item.config.stash[_stderr])
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


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
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """For TLS, of a server and a client."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def tls_kafka(certificates: Certificates) -> Iterator[LocalKafka]:
    """A broker that takes TLS alone, and requires a client certificate."""
    listener = "listener.name.client"
    properties = {
        f"{listener}.ssl.keystore.type": "PEM",
        f"{listener}.ssl.keystore.location": str(certificates.server),
        f"{listener}.ssl.truststore.type": "PEM",
        f"{listener}.ssl.truststore.location": str(certificates.ca),
        f"{listener}.ssl.client.auth": "required",
    }
    with LocalKafka(security_protocol="SSL", properties=properties) as broker:
        yield broker


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A real S3 server for the whole run, each test with a bucket of its own."""
    with S3Server() as server:
        yield server


@pytest.fixture(scope="session")
def registry() -> Iterator[SchemaRegistryServer]:
    """A real schema registry for the whole run, each test with topics of its own. A test that ends
    or freezes one makes its own."""
    with SchemaRegistryServer() as server:
        yield server


@pytest.fixture(scope="session")
def hdfs() -> Iterator[HdfsCluster]:
    """A real HDFS for the whole run, each test with a folder of its own."""
    with HdfsCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQLServer]:
    """A real PostgreSQL for the whole run, each test with databases of its own. A test that ends
    or freezes one makes its own."""
    yield from _served(PostgreSQLServer())


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDBServer]:
    """The same of MariaDB."""
    yield from _served(MariaDBServer())


@pytest.fixture(scope="session")
def mongo_protocol() -> Iterator[MongoProtocolServer]:
    """The same of the server that speaks MongoDB's protocol."""
    yield from _served(MongoProtocolServer())


def _served(server: _Server) -> Iterator[_Server]:
    with ExitStack() as held:
        try:
            held.enter_context(server)
        except ProgramsMissing as missing:
            pytest.fail(str(missing), pytrace=False)
        yield server


@pytest.fixture(scope="session")
def programs() -> Programs:
    """Prometheus' and Alertmanager's."""
    try:
        return prometheus_programs()
    except ProgramsMissing as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture(autouse=True)
def unblocked_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test in which a step held an event loop for more than 100 ms of CPU time."""
    if request.node.get_closest_marker("blocks_loop") is not None:
        yield
        return
    with blocking_steps() as steps:
        yield
    assert not steps, f"the loop was blocked: {max(steps)}"
