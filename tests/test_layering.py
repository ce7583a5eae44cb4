"""Which package may import which, each seen in an interpreter of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

IMPORT_AND_TELL = """
import importlib, json, pkgutil, sys

name, depth = sys.argv[1:]
package = importlib.import_module(name)
if depth == "every module":
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        importlib.import_module(module.name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
WEB = {"fastapi", "starlette", "uvicorn", "typer", "rich", "httpx"}
DATABASES = {"sqlalchemy", "alembic", "pymongo"}


def imported_by(package: str, *, every_module: bool) -> set[str]:
    """Top-level names that are loaded once `package`, or every module of it, is imported."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_AND_TELL, package, "every module" if every_module else "it"],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_schemas_stand_on_nothing_of_ours() -> None:
    loaded = imported_by("sparklag_schemas", every_module=True)
    ours = {"sparklag_offsets", "sparklag_listener", "sparklag_service", "sparklag_pipeline"}
    assert not loaded & ours
    assert not loaded & (WEB | {"pyspark"})


def test_offsets_stand_on_the_schemas_alone() -> None:
    loaded = imported_by("sparklag_offsets", every_module=True)
    assert not loaded & {"sparklag_listener", "sparklag_service", "sparklag_pipeline"}
    assert not loaded & WEB


def test_importing_the_listener_brings_no_service_into_the_driver() -> None:
    loaded = imported_by("sparklag_listener", every_module=False)
    assert not loaded & {"sparklag_service", "sparklag_pipeline"}
    assert not loaded & (WEB | DATABASES)


def test_no_module_of_the_listener_imports_the_service_before_it_is_asked_to() -> None:
    loaded = imported_by("sparklag_listener", every_module=True)
    assert not loaded & {"sparklag_service", "sparklag_pipeline"}


@pytest.mark.parametrize("package", ["sparklag_schemas", "sparklag_offsets", "sparklag_service"])
def test_no_module_imports_pyspark(package: str) -> None:
    assert "pyspark" not in imported_by(package, every_module=True)


def test_importing_the_listener_does_not_import_pyspark() -> None:
    # It is handed a session; a driver on another Spark than the one on sys.path must not notice.
    assert "pyspark" not in imported_by("sparklag_listener", every_module=False)
