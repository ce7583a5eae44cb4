"""`sparklag-run`: the command it is given runs as it would, with one variable more."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests import commands

SPARKLAG_RUN = str(Path(sys.executable).with_name("sparklag-run"))
SHOW = "import os, sys; print(os.environ['SPARKLAG_AUTO'], sys.argv[1:]); sys.exit(7)"


def run_program(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return commands.run(*command, env=os.environ | variables, timeout_s=400)


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run_program(SPARKLAG_RUN, *arguments, **variables)


@pytest.mark.parametrize("before", [(), ("--",)])
def test_the_command_keeps_its_arguments_output_and_exit_code(before: tuple[str, ...]) -> None:
    done = run(*before, sys.executable, "-c", SHOW, "--", "a b", "", SPARKLAG_AUTO="0")
    assert (done.returncode, done.stdout, done.stderr) == (7, "1 ['--', 'a b', '']\n", "")


def test_the_driver_in_a_cluster_gets_the_variable_too(tmp_path: Path) -> None:
    submit = tmp_path / "spark-submit"
    submit.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    submit.chmod(0o755)
    done = run(str(submit), "--deploy-mode", "cluster", "job.py", PYSPARK_PYTHON=sys.executable)
    assert done.stdout.splitlines() == [
        "--conf=spark.kubernetes.driverEnv.SPARKLAG_AUTO=1",
        "--conf=spark.yarn.appMasterEnv.SPARKLAG_AUTO=1",
        *("--deploy-mode", "cluster", "job.py"),
    ]
    assert done.stderr == ""


def test_a_python_without_sparklag_is_named_with_what_to_do(tmp_path: Path) -> None:
    venv.create(tmp_path, symlinks=True)
    python = str(tmp_path / "bin" / "python")
    done = run(python, "-c", "print('runs')")
    assert (done.returncode, done.stdout) == (0, "runs\n")
    assert done.stderr == (
        f"sparklag-run: {python} has no sparklag, so its sessions are not observed:"
        f" {python} -m pip install sparklag (in a clone: {python} -m pip install .)\n"
    )


def test_on_windows_it_waits_for_the_command_which_may_be_a_script(tmp_path: Path) -> None:
    submit = tmp_path / "spark-submit.cmd"
    submit.write_text('#!/bin/sh\necho "$1"; exit 7\n')
    submit.chmod(0o755)
    main = "import os, sys; from sparklag_auto.run import main; os.name = 'nt'; sys.exit(main())"
    done = run_program(sys.executable, "-c", main, str(submit), PYSPARK_PYTHON=sys.executable)
    option = "--conf=spark.kubernetes.driverEnv.SPARKLAG_AUTO=1\n"
    assert (done.returncode, done.stdout, done.stderr) == (7, option, "")


def test_without_a_command_it_shows_how_it_is_used() -> None:
    assert run().returncode == 2
    assert run().stderr == run("--help").stdout
    assert run("--help").stdout.startswith("usage: sparklag-run COMMAND")


@pytest.mark.parametrize(("is_there", "code"), [(False, 127), (True, 126)])
def test_a_command_that_cannot_run_is_one_line(is_there: bool, code: int, tmp_path: Path) -> None:
    command = tmp_path / "job"
    if is_there:
        command.touch(mode=0o644)
    done = run(str(command))
    assert done.returncode == code
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"sparklag-run: {command} cannot be run: ")
