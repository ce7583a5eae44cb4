"""What runs where Python lacks the names that Windows' lacks: `without_unix`."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.end_to_end import START_S, Topics, process
from tests.local_kafka import LocalKafka
from tests.scripts import run_script
from tests.second_client import SecondClient
from tests.waiting import wait_for

IMPORT = """
import tests.platforms.without_unix
import importlib, pkgutil
for package in (
    "sparklag", "sparklag_auto", "sparklag_schemas", "sparklag_kafka", "sparklag_offsets",
    "sparklag_listener", "sparklag_service",
):
    folder = importlib.import_module(package).__path__
    for module in pkgutil.walk_packages(folder, f"{package}."):
        importlib.import_module(module.name)
"""
READ = """
import os
import tests.platforms.without_unix
from sparklag_offsets.checkpoints.files import LocalFiles
os.makedirs("C:/checkpoint/offsets")
for number in "01":
    with open(f"C:/checkpoint/offsets/{number}", "wb") as file:
        file.write(b"v1\\r\\n")
os.symlink("0", "C:/checkpoint/offsets/2")
files = LocalFiles("C:/checkpoint", None)
print(files.list_log("offsets").batch_ids, files.read("offsets/1"))
files.read("offsets/2")
"""


def test_every_module_is_imported() -> None:
    imported = run_script(IMPORT)
    assert imported.exit_code == 0, imported.errors


def test_a_checkpoint_is_read_and_no_link_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    read = run_script(READ)
    assert read.lines == ["[0, 1, 2] b'v1\\r\\n'"], read.errors
    assert read.errors.endswith("FileNotFoundError: offsets/2\n")


@pytest.mark.kafka
def test_the_service_ends_by_a_signal(
    kafka: LocalKafka, second_client: SecondClient, tmp_path: Path
) -> None:
    log, module = tmp_path / "log", "tests.platforms.without_unix"
    servers = ("--bootstrap-servers", kafka.bootstrap_servers, "--http-port", "0")
    with process(
        Topics(second_client), log, module, "sparklag_service", "serve", *servers
    ) as service:
        wait_for(lambda: "Started server process" in log.read_text(), "it serves", START_S)
        service.send_signal(signal.SIGTERM)
        assert service.wait(START_S) == 0, log.read_text()
