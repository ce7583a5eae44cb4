"""Which folder of the listener may import which."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sparklag_listener

ROOT = Path(sparklag_listener.__file__).parent
SHARED = {"errors", "stats"}
"""Modules of the root that import none of the package."""


def imported_by(folder: str) -> set[str]:
    """Folders, and modules of the root, that the modules of a folder import."""
    names = set()
    for path in (ROOT / folder).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                package, _, rest = node.module.partition(".")
                if package == "sparklag_listener":
                    names.add(rest.partition(".")[0])
    return names - {folder}


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        ("events", SHARED),
        ("publishing", SHARED),
        ("classic", SHARED | {"events"}),
        ("connect", SHARED | {"events"}),
        ("lag", SHARED | {"background_loop"}),
    ],
)
def test_a_folder_imports_only_those_below_it(folder: str, allowed: set[str]) -> None:
    assert imported_by(folder) <= allowed


def test_the_root_has_at_most_ten_modules() -> None:
    assert len(list(ROOT.glob("*.py"))) <= 10
