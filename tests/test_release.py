"""A release has one version, in one place, and a changelog that is cut in one step."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from sparklag_schemas import SCHEMA_VERSION, Settings
from sparklag_service import VERSION
from sparklag_service.instance_state import InstanceState
from sparklag_service.rest.app import create_app
from tests.commands import run
from tests.service.pipelines import pipeline_of
from tests.test_requirements import PROJECT

ROOT: Final = Path(__file__).parent.parent
PARTS: Final = ("CHANGELOG.md", "pyproject.toml", "schemas", "scripts")
CHANGELOG: Final = """# Changelog

## [Unreleased]

### Added
- A thing.

## [1.4.0] - 2026-01-31

### Fixed
- Another.
"""


def test_the_installed_version_is_the_projects() -> None:
    assert PROJECT["project"]["version"] == VERSION
    document = create_app(InstanceState(pipeline_of(Settings()))).openapi()
    assert document["info"]["version"] == VERSION


def test_no_other_file_names_the_version() -> None:
    version = re.escape(PROJECT["project"]["version"])
    pattern = rf"(^|sparklag|app)[-_ \"]*(version)?[-_ \"':=]*v?{version}([^0-9]|$)"
    files = subprocess.check_output(
        ["git", "grep", "--ignore-case", "-lE", pattern, "--", ":!*package-lock.json"],
        cwd=ROOT,
        text=True,
    ).split()
    charts = {str(path.relative_to(ROOT)) for path in ROOT.glob("deploy/**/Chart.yaml")}
    # The script that cuts a release writes these.
    assert set(files) - {"CHANGELOG.md"} == {"pyproject.toml", *charts}


def test_the_newest_release_in_the_changelog_is_the_version() -> None:
    newest, *released = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    if newest == "Unreleased":
        newest, *_ = [*released, VERSION]
    assert newest == VERSION


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in PARTS:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    project = tmp_path / "pyproject.toml"
    project.write_text(project.read_text().replace(f'"{VERSION}"', '"1.4.0"', 1))
    chart = tmp_path / "deploy" / "helm" / "Chart.yaml"
    chart.parent.mkdir(parents=True)
    chart.write_text('apiVersion: v2\nversion: 1.4.0\nappVersion: "1.4.0"\n')
    shutil.rmtree(tmp_path / "schemas" / "released" / SCHEMA_VERSION, ignore_errors=True)
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    return subprocess.check_output(["git", *identity, *arguments], cwd=folder, text=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all", "--force")
    git(folder, "commit", "-q", "-m", "state")


def cut(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, folder / "scripts" / "cut_release.py", *arguments)


def test_a_release_sets_the_version_and_dates_the_changelog(checkout: Path) -> None:
    done = cut(checkout, "1.10.0")
    assert (done.returncode, done.stderr) == (0, "")
    assert "git tag -a v1.10.0" in done.stdout
    changed = [line for line in git(checkout, "diff", "-U0").splitlines() if line[0] in "+-"]
    assert [re.sub(r"\d{4}-\d\d-\d\d$", "DATE", line) for line in changed if line[:3] != "---"] == [
        "+++ b/CHANGELOG.md",
        "+## [1.10.0] - DATE",
        "+",
        "+++ b/deploy/helm/Chart.yaml",
        "-version: 1.4.0",
        '-appVersion: "1.4.0"',
        "+version: 1.10.0",
        "+appVersion: 1.10.0",
        "+++ b/pyproject.toml",
        '-version = "1.4.0"',
        '+version = "1.10.0"',
    ]
    kept = {path.name for path in (checkout / "schemas/released" / SCHEMA_VERSION).iterdir()}
    assert kept == {path.name for path in (checkout / "schemas/released/1.0").iterdir()}

    commit(checkout)
    assert "no entry under [Unreleased]" in cut(checkout, "1.11.0").stderr


@pytest.mark.slow
def test_the_first_release_may_have_the_version_that_is_there(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text(CHANGELOG.partition("## [1.4.0]")[0])
    commit(checkout)
    assert cut(checkout, "1.4.0").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("1.4.0",), "not released: 1.4.0 is not higher than 1.4.0"),
        (("1.3.9",), "not released: 1.3.9 is not higher than 1.4.0"),
        (("v1.5.0",), "not released: 'v1.5.0' is not a version of the form 1.2.3"),
        (("1.5",), "not released: '1.5' is not a version of the form 1.2.3"),
        ((), "expected one version: make release VERSION=0.2.0"),
    ],
)
def test_a_wrong_version_is_refused(checkout: Path, arguments: tuple[str, ...], line: str) -> None:
    done = cut(checkout, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{line}\n")
    assert git(checkout, "status", "--porcelain") == ""


@pytest.mark.slow
def test_changes_that_are_not_committed_are_refused(checkout: Path) -> None:
    (checkout / "README.md").touch()
    done = cut(checkout, "1.5.0")
    assert done.stderr == "not released: changes are not committed: ?? README.md\n"
