"""Help of every command: one form, within the terminal, and the same words for the same option."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

import pytest
import typer

from sparklag_jobs.demo import __main__ as demo
from sparklag_jobs.history import lag_history
from sparklag_jobs.report import lag_report
from sparklag_service import cli
from sparklag_service.cli import programs
from sparklag_service.errors import ServiceError
from tests.commands import succeed
from tests.service.cli.terminals import WIDTHS

COMMANDS = {
    *("serve", "lag", "queries", "forget", "top", "tail", "checkpoint", "check"),
    *("topics", "topics create", "history"),
    *("tokens", "tokens create", "tokens list", "tokens revoke"),
    *("offsets", "offsets list", "offsets show", "offsets diff", "offsets restore"),
}
PROGRAMS: dict[str, Callable[[list[str]], object]] = {
    "demo": demo.main,
    "report": lag_report.main,
    "history run": lag_history.main,
}
Page = Callable[[str, int], str]
SHARED = ("--bootstrap-servers", "--config", "--json", "--store", "--at", "-h")


def _run(arguments: list[str]) -> None:
    assert sys.argv[-1:] == arguments
    cli.run()


def commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(cli.app)
    return {name: group.get_command(typer.Context(group), name) for name in group.commands}


@pytest.fixture
def page(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Page:
    def print_help(command: str, width: int) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr("sys.argv", ["sparklag", *command.split(), "--help"])
        with pytest.raises(SystemExit) as end:
            PROGRAMS.get(command, _run)(["--help"])
        assert not end.value.code
        return capsys.readouterr().out

    return print_help


@pytest.mark.parametrize("command", sorted({"", *COMMANDS, *PROGRAMS}))
def test_every_help_has_the_same_sections_within_the_width(page: Page, command: str) -> None:
    for width in WIDTHS:
        text = page(command, width)
        assert text.startswith(f"Usage: {f'sparklag {command}'.strip()} ")
        assert max(map(len, text.splitlines())) <= width
        sections = re.findall(r"^(\w+):$", text, re.MULTILINE)
        assert [s for s in ("Arguments", "Options", "Commands") if s in sections] == sections
        assert "Options" in sections
        assert "-h, --help Show this message and exit." in " ".join(text.split())
        assert "..." not in text.partition("Commands:")[2]


def test_an_option_has_the_same_words_everywhere(page: Page) -> None:
    received: dict[str, set[str]] = {}
    for command in {*COMMANDS, *PROGRAMS} - {"checkpoint"}:  # its help explains for what
        text = page(command, 120).partition("Options:\n")[2].partition("\n\n")[0]
        for option in re.split(r"\n(?=  -)", text):
            name = option.split()[0].rstrip(",")
            received.setdefault(name, set()).add(" ".join(option.split()))
    assert {name: received[name] for name in SHARED if len(received[name]) != 1} == {}


def test_no_command_is_left_out_here() -> None:
    names = set()
    for name, command in commands().items():
        names |= {name, *(f"{name} {below}" for below in getattr(command, "commands", ()))}
    assert names == COMMANDS | PROGRAMS.keys()


@pytest.mark.parametrize("command", commands())
def test_the_list_of_commands_has_the_first_sentence_of_each_help(page: Page, command: str) -> None:
    listed = " ".join(page("", 200).split())
    assert f" {command} {commands()[command].get_short_help_str(1_000)}" in listed


def test_the_list_of_commands_loads_none_of_them() -> None:
    script = "import sys; sys.argv = ['sparklag', '--help']; from sparklag_service.cli import run\n"
    script += "try: run()\nfinally: print(*sys.modules)"
    printed = succeed(sys.executable, "-c", script)
    assert "typer" in printed.split()
    assert {"sparklag_schemas", "rich", "httpx", "aiokafka"}.isdisjoint(printed.split())


@pytest.mark.parametrize("command", PROGRAMS)
def test_a_wrong_argument_is_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        PROGRAMS[command](["--colour\x1b[2J"])
    assert end.value.code == 2
    assert capsys.readouterr().err == (
        f"sparklag: unrecognized arguments: --colour\\x1b[2J: see `sparklag {command} --help`\n"
    )


def test_without_pyspark_it_reports_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> ModuleSpec | None:
        assert name == "pyspark"
        return None

    monkeypatch.setattr(programs, "find_spec", nothing)
    context = typer.Context(typer.main.get_command(typer.Typer(callback=lambda: None)))

    with pytest.raises(ServiceError, match=r"needs pyspark: pip install 'sparklag\[demo\]'"):
        programs.report(context)
