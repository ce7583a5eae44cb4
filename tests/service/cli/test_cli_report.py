"""`sparklag report` where it cannot run."""

from __future__ import annotations

from importlib.machinery import ModuleSpec

import pytest
import typer

from sparklag_service.cli import programs
from sparklag_service.errors import ServiceError


def test_without_pyspark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> ModuleSpec | None:
        assert name == "pyspark"
        return None

    monkeypatch.setattr(programs, "find_spec", nothing)
    context = typer.Context(typer.main.get_command(typer.Typer(callback=lambda: None)))

    with pytest.raises(ServiceError, match=r"needs pyspark: pip install 'sparklag\[demo\]'"):
        programs.report(context)
