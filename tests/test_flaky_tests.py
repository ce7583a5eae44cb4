"""Tests that are marked as flaky, in a run of their own."""

from __future__ import annotations

import os
import sys
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.commands import run
from tests.flaky_tests import ALLOWED

TODAY = date.today()
ALLOWED_STILL = TODAY - ALLOWED + timedelta(days=1)  # midnight may be near
EXPIRED = TODAY - ALLOWED - timedelta(days=1)
WRONG = {
    "nothing": "",
    "no_date": "'a reason'",
    "no_reason": f"since='{TODAY}'",
    "empty_reason": f"'  ', '{TODAY}'",
    "no_such_date": "'a reason', 'May'",
    "future": "'a reason', '9999-01-01'",
}


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("flaky")
    (folder / "test_it.py").write_text(f"""
import pytest

@pytest.mark.flaky("the port is taken", "{ALLOWED_STILL}")
@pytest.mark.parametrize("fails", [True, False])
def test_allowed(fails):
    assert not fails

@pytest.mark.flaky(since="{EXPIRED}", reason="the port is taken")
def test_expired():
    pass
""")
    for name, arguments in WRONG.items():
        test = f"@pytest.mark.flaky({arguments})\ndef test_{name}(): pass\n"
        (folder / f"test_{name}.py").write_text(f"import pytest\n{test}")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = flaky\n")
    options = ["-p", "tests.flaky_tests", "-ra", "--continue-on-collection-errors"]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = run(sys.executable, "-m", "pytest", *options, cwd=folder, env=env)
    assert done.returncode == 1, done.stdout
    assert f" 1 xfailed, 1 xpassed, {len(WRONG) + 1} errors in " in done.stdout
    return done.stdout


@pytest.mark.parametrize("line", ["XFAIL {}[True] - {}", "XPASS {}[False] - {}"])
def test_a_flaky_failure_is_listed_with_reason_and_date(output: str, line: str) -> None:
    text = f"flaky since {ALLOWED_STILL}: the port is taken"
    assert line.format("test_it.py::test_allowed", text) in output


def test_it_fails_with_one_line_once_it_was_allowed_long_enough(output: str) -> None:
    line = f"test_it.py::test_expired: flaky since {EXPIRED}: the port is taken: more than 14 days"
    assert line in output.splitlines()


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_marker_is_an_error_of_collection(output: str, name: str) -> None:
    expected = "expected flaky(reason='...', since='YYYY-MM-DD'): "
    assert f"test_{name}.py::test_{name}: {expected}" in output
