"""The images `service` and `pipeline`: what is in them, and what is not."""

from __future__ import annotations

import json
import re
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

import pytest

from tests.containers.docker import (
    ROOT,
    compressed_size,
    contents,
    docker,
    files_of,
    image,
    in_image,
    inspect,
    run,
)

pytestmark = [pytest.mark.containers, pytest.mark.timeout(3600)]

MAX_COMPRESSED_MB: Final = 150
_SBOM: Final = "/opt/sparklag/sbom.cdx.json"
_PACKAGES: Final = """
import importlib.metadata, json
print(json.dumps([[d.name, d.version] for d in importlib.metadata.distributions()]))
"""
both = pytest.mark.parametrize("name", ["service", "pipeline"])


@both
def test_an_image_is_labelled_with_the_commit_it_was_built_from(name: str) -> None:
    labels = inspect(image(name))["Config"]["Labels"]
    title = "org.opencontainers.image"
    commit, time = run("git", "log", "-1", "--format=%H %ct").stdout.split()
    created = datetime.fromtimestamp(int(time), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.M)
    assert version is not None
    assert labels[f"{title}.title"].startswith("sparklag")
    assert labels[f"{title}.description"]
    assert labels[f"{title}.version"] == version[1]
    assert labels[f"{title}.revision"].removesuffix("-dirty") == commit
    assert labels[f"{title}.created"] == created
    assert labels[f"{title}.licenses"] == "Apache-2.0"
    assert f"{title}.source" in labels


@both
def test_the_bill_of_materials_lists_exactly_the_packages_of_the_image(name: str) -> None:
    # That it is valid CycloneDX is checked where it is written, in the build.
    bill = json.loads(in_image(name, "-c", f"print(open({_SBOM!r}).read())"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert "serialNumber" not in bill
    listed = sorted([each["name"], each["version"]] for each in bill["components"])
    installed = sorted(json.loads(in_image(name, "-c", _PACKAGES)))
    assert listed == installed
    assert "sparklag" in dict(listed)


@both
def test_an_image_runs_as_a_user_who_may_write_to_nothing_in_it(name: str) -> None:
    assert inspect(image(name))["Config"]["User"] == "10001:10001"
    writable = {
        path
        for path, file in files_of(name).items()
        if (file.uid == 10001 or file.mode & 0o002) and not (file.issym() or file.ischr())
    }
    # What the runtime mounts something over, and the volume of the checkpoint.
    expected = {"tmp/", "var/tmp/", "var/lib/sparklag/", "var/lib/sparklag/checkpoint/"}
    assert {f"{path.rstrip('/')}/" for path in writable} <= expected | {"dev/shm/", "run/lock/"}


def test_the_service_has_no_program_but_python_and_its_packages() -> None:
    files = files_of("service")
    names = {Path(path).name for path, file in files.items() if not file.isdir()}
    assert not names & {"sh", "bash", "dash", "busybox", "apt-get", "dpkg", "apk", "pip", "uv"}
    programs = {
        path
        for path, file in files.items()
        if file.size and file.mode & 0o111 and not re.search(r"\.py$|\.so[.\d]*$", path)
    }
    interpreters = {path for path in programs if re.search(r"bin/python3\.\d+$", path)}
    others = {path for path in programs if path.startswith("opt/sparklag/")}
    loaders = {path for path in programs if Path(path).name.startswith("ld-linux")}
    assert len(interpreters) == 1
    assert programs == interpreters | others | loaders
    done = run("docker", "run", "--rm", "--entrypoint", "python", image("service"), "-m", "pip")
    assert "No module named pip" in done.stdout


def test_the_service_takes_no_more_than_the_limit_in_a_registry() -> None:
    size = compressed_size("service") / 1e6
    sys.stderr.write(f"the image of the service: {size:.1f} MB compressed\n")
    assert size <= MAX_COMPRESSED_MB


def test_two_builds_of_the_service_have_the_same_files() -> None:
    again = f"{image('service')}-again"
    try:
        done = run(
            *("nice", "sh", "scripts/build_images.sh", "--no-cache", "service"),
            environment={"SERVICE_IMAGE": again},
        )
        assert done.returncode == 0, done.stdout[-4000:]
        differing = contents(image("service")) ^ contents(again)
        assert not differing, sorted(differing, key=str)[:10]
    finally:
        docker("image", "rm", "-f", again)
