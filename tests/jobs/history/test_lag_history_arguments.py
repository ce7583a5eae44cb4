"""Wrong arguments of the job are refused before it starts anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklag_jobs.history.lag_history import main


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "sparklag: setting bootstrap_servers is not set: "),
        (["--lateness", "soon"], "sparklag: --lateness 'soon': takes a number and a unit, "),
        (["--roll-up-trigger", "5m"], "sparklag: --roll-up-trigger '5m': takes a number "),
        (["--config", "nowhere.toml"], "sparklag: no settings file at nowhere.toml"),
    ],
)
def test_a_wrong_argument_is_one_line_and_exit_code_2(
    arguments: list[str],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    output = capsys.readouterr().err
    assert output.startswith(line)
    assert output.count("\n") == 1
