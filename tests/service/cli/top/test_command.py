"""`sparklag top` where it cannot run, and what other commands load of it."""

from __future__ import annotations

import subprocess
import sys

from tests.service.cli.test_cli import refused, sparklag

WITHOUT_TEXTUAL = """
import sys
sys.modules["textual"] = None  # as where it is not installed
sys.argv = ["sparklag", "top"]
from sparklag_service.cli import run
run()
"""
LOADED = "import sys, sparklag_service.cli; print(sorted({*sys.modules} & {'textual'}))"


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=180, check=False
    )


def test_without_the_extra_one_line_names_it() -> None:
    assert refused(python(WITHOUT_TEXTUAL)) == (
        "sparklag: top needs textual: pip install 'sparklag[top]'"
    )


def test_in_a_pipe_one_line_names_the_command_to_use() -> None:
    assert refused(sparklag("top")) == (
        "sparklag: top needs a terminal: use `sparklag queries` where there is none"
    )


def test_no_other_command_loads_textual() -> None:
    assert python(LOADED).stdout == "[]\n"
