"""What the demo tells its reader to type is what there is to type."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sparklag
from sparklag_pipeline.demo import __main__ as demo
from sparklag_pipeline.demo import order_producer, order_totals
from sparklag_pipeline.demo.next_steps import broker_usage, next_steps, own_command, own_python
from sparklag_service.cli import app


def _is_taken(arguments: list[str]) -> bool:
    """Whether the command line has that command with those arguments."""
    name, *rest = arguments
    if name == "demo":
        # A program of its own, which this would start.
        return bool(demo._arguments(rest).kafka_only)
    return CliRunner().invoke(app, [*arguments, "--help"]).exit_code == 0


@pytest.mark.parametrize("text", [next_steps("COMMAND"), broker_usage("b:9092", "COMMAND", "PY")])
def test_every_command_is_one_that_there_is(text: str) -> None:
    commands = re.findall(r"COMMAND (.+)$", text, re.MULTILINE)
    assert len(commands) >= 2
    for command in commands:
        assert _is_taken(shlex.split(command)), command
    assert not _is_taken(["serve", "--bootstrap-server", "b:9092"])


def test_the_lines_for_the_driver_are_its_import_and_its_call() -> None:
    text = next_steps("sparklag")
    assert f"import {sparklag.__name__}\n" in text
    assert f"handle = sparklag.{sparklag.observe.__name__}(spark)" in text
    assert "sparklag-run spark-submit" in text


@pytest.mark.parametrize("program", [order_producer, order_totals])
def test_a_program_beside_the_broker_takes_its_address(program: object) -> None:
    name = program.__name__  # type: ignore[attr-defined]
    (arguments,) = re.findall(rf"PY -m {name} (.+)$", broker_usage("b:9092", "", "PY"), re.M)
    parsed = program._arguments(shlex.split(arguments))  # type: ignore[attr-defined]
    assert parsed.bootstrap_servers == "b:9092"


def test_a_program_is_named_so_that_it_can_be_typed_where_the_reader_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    folder = Path(sys.executable).parent
    monkeypatch.chdir(folder.parent)
    assert own_command() == f"{folder.name}/sparklag"
    assert own_python() == f"{folder.name}/{Path(sys.executable).name}"
    monkeypatch.setenv("PATH", str(folder))
    assert own_command() == "sparklag"
