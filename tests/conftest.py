"""Fixtures every package's tests share."""

from __future__ import annotations

import faulthandler
import os
import pkgutil
import re
import signal
import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests.loop_guard import blocking_steps
from tests.shared_servers import SharedServers
from tests.spark_configuration import pyspark_environment

if TYPE_CHECKING:
    # Each is imported by the fixture that needs it: most runs need few.
    from pyspark.sql import SparkSession

    from tests.certificates import Certificates
    from tests.deploy.programs import Programs
    from tests.end_to_end import Topics
    from tests.hdfs_cluster import HdfsCluster
    from tests.local_kafka import LocalKafka
    from tests.s3_server import S3Server
    from tests.second_client import SecondClient

# A busy machine takes longer for an example. `make soak` tries more of each property.
for _profile, _examples in (("tests", 25), ("thorough", 1_000)):
    hypothesis.settings.register_profile(
        _profile,
        max_examples=_examples,
        deadline=None,
        # Where CI is set, hypothesis would try the same values each time.
        derandomize=False,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
hypothesis.settings.load_profile("tests")

# Every Spark that a test starts, in its own process or another, begins with these settings.
os.environ.pop("SPARK_CONF_DIR", None)
os.environ.update(pyspark_environment())

TEARDOWN_S = 300.0
"""Twice what ending all the parts takes on a slow machine."""

_KEPT_RUNS = 50
_stderr = pytest.StashKey[int]()


_LONGEST_FIRST = (
    "tests/simulation/",
    "tests/lanes/",
    "tests/faults/",
    "tests/jobs/history/",
    "tests/listener/test_driver_endings.py",
    "tests/listener/test_connect.py",
    "tests/service/intakes/test_group_faults.py",
    "tests/test_document_blocks.py",
    "tests/jobs/demo/test_demo.py",
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
        if report.failed and crash is not None and terminal is not None:
            terminal.write_line(f" {report.nodeid}: {crash}"[:1000])


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # A shell starts a background job with both ignored, and so would every process of a test be.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    # What is dumped must not go where a test's output is kept.
    config.stash[_stderr] = os.dup(2)
    config.pluginmanager.register(FailureLines(config))
    config.pluginmanager.register(SharedServers.of(config), "shared_servers")
    config.pluginmanager.import_plugin("tests.flaky_tests")
    if not hasattr(config, "workerinput") and not config.option.collectonly:
        _keep_results(config)


def _keep_results(config: pytest.Config) -> None:
    folder = config.rootpath / ".cache" / "junit"
    name = f"{datetime.now():%Y-%m-%dT%H-%M-%S}-{os.getpid()}.xml"
    if config.option.xmlpath is None:
        config.option.xmlpath = str(folder / name)
    for old in sorted(folder.glob("*.xml"))[: 1 - _KEPT_RUNS]:
        with suppress(OSError):
            old.unlink()


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_stderr])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_begins)


def _begins(item: pytest.Item) -> int:
    for place, path in enumerate(_LONGEST_FIRST):
        if item.nodeid.startswith(path):
            return place
    return len(_LONGEST_FIRST)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Ends a run that hangs here with all stacks: pytest-timeout ends with the test's call."""
    faulthandler.dump_traceback_later(TEARDOWN_S, exit=True, file=item.config.stash[_stderr])
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def shared_servers(pytestconfig: pytest.Config) -> SharedServers:
    """The run's servers: a test that stops or freezes one starts its own."""
    servers: SharedServers | None = pytestconfig.pluginmanager.get_plugin("shared_servers")
    assert servers is not None
    return servers


def _shared(name: str) -> Any:
    @pytest.fixture(scope="session")
    def server(shared_servers: SharedServers) -> Any:
        return shared_servers.get(pkgutil.resolve_name(name))

    return server


kafka = _shared("tests.local_kafka:LocalKafka")
scram_kafka = _shared("tests.secured_kafka:ScramKafka")
registry = _shared("tests.schema_registry:SchemaRegistryServer")
postgresql = _shared("tests.databases.postgresql:PostgreSQLServer")
mariadb = _shared("tests.databases.mariadb:MariaDBServer")
mongo_protocol = _shared("tests.databases.mongo_protocol:MongoProtocolServer")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A real session for the whole run. A test that stops one has it in a process of its own."""
    from tests.listener.drivers import build_session

    session = build_session()
    yield session
    session.stop()


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    return f"{test[:60]}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def second_client(kafka: LocalKafka) -> SecondClient:
    from tests.second_client import SecondClient

    return SecondClient(kafka.bootstrap_servers)


@pytest.fixture
def topics(second_client: SecondClient) -> Topics:
    from tests.end_to_end import Topics

    return Topics(second_client)


@pytest.fixture(scope="session")
def certificates(shared_servers: SharedServers) -> Certificates:
    from tests.certificates import Certificates, make_certificates

    return Certificates(shared_servers.made("certificates", make_certificates))


@pytest.fixture(scope="session")
def tls_kafka(shared_servers: SharedServers, certificates: Certificates) -> LocalKafka:
    from tests.secured_kafka import TlsKafka

    return shared_servers.get(TlsKafka, str(certificates.folder))


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A real S3 server for the tests of a process, each with a bucket of its own."""
    from tests.s3_server import S3Server

    with S3Server() as server:
        yield server


@pytest.fixture(scope="session")
def hdfs() -> Iterator[HdfsCluster]:
    """A real HDFS for the tests of a process, each with a folder of its own."""
    from tests.hdfs_cluster import HdfsCluster

    with HdfsCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def programs() -> Programs:
    from tests.debian_packages import ProgramsMissing
    from tests.deploy.programs import prometheus_programs

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
