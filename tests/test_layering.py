"""Which package and which stage of the service may import which: see `docs/architecture.md`."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.commands import succeed

IMPORT_AND_TELL = """
import importlib, json, pkgutil, sys

name, depth = sys.argv[1:]
package = importlib.import_module(name)
if depth == "every module":
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        importlib.import_module(module.name)
print(json.dumps(sorted(sys.modules)))
"""
WEB = {"fastapi", "starlette", "uvicorn", "typer", "rich", "httpx"}
DATABASES = {"sqlalchemy", "alembic", "pymongo"}


def imported_by(package: str, *, every_module: bool) -> set[str]:
    depth = "every module" if every_module else "it"
    output = succeed(sys.executable, "-c", IMPORT_AND_TELL, package, depth)
    return set(json.loads(output.splitlines()[-1]))


PACKAGES = (
    "sparklag_schemas",
    "sparklag_kafka",
    "sparklag_offsets",
    "sparklag_listener",
    "sparklag_service",
    "sparklag_jobs",
)
"""The lower ones first."""


@pytest.mark.parametrize("package", [*PACKAGES[:-1], "sparklag", "sparklag_auto"])
def test_all_but_the_jobs_are_imported_without_what_windows_lacks(package: str) -> None:
    program = f"import tests.platforms.without_unix\n{IMPORT_AND_TELL}"
    succeed(sys.executable, "-c", program, package, "every module")


@pytest.mark.parametrize("package", PACKAGES[:3])
def test_a_package_imports_none_above_it(package: str) -> None:
    loaded = imported_by(package, every_module=True)
    assert not loaded & {*PACKAGES[PACKAGES.index(package) + 1 :]}
    # With Avro alone, for the schema registry: httpx, which loads rich where it is there.
    assert not loaded & (WEB - {"httpx", "rich"} | {"pyspark"})


def test_importing_the_listener_loads_no_large_package_into_the_driver() -> None:
    # aiokafka takes as long as the rest: a thread loads it. pyspark: the driver may have another
    # than the one on sys.path.
    loaded = imported_by("sparklag_listener", every_module=False)
    assert not loaded & {"sparklag_service", "sparklag_jobs", *WEB, *DATABASES}
    assert not loaded & {"aiokafka", "pyspark", "pandas", "IPython", "http.client"}


@pytest.mark.parametrize(
    ("package", "excluded"),
    [
        ("sparklag_listener", {"sparklag_service", "sparklag_jobs"}),
        ("sparklag_service", {"pyspark"}),
    ],
)
def test_no_module_of_a_package_imports_these(package: str, excluded: set[str]) -> None:
    assert not imported_by(package, every_module=True) & excluded


ROOT = Path(__file__).parent.parent
LISTENER = ROOT / "listener" / "sparklag_listener"
SERVICE = ROOT / "service" / "sparklag_service"
STAGES = ("intakes", "tracking", "enrichment", "evaluation", "publishing", "view")
AFTER_VIEW = ("access", "history", "live", "metrics", "rest", "mirror", "cli")
FOR_STAGES = {"counters", "errors", "supervision"}
"""Modules at the root that every stage may import."""
FOR_CLI = FOR_STAGES | {"server", "pipeline", "recording"}
WIRE_LIBRARIES = re.compile(r"aiokafka\.(protocol|conn|record|client|errors|helpers|admin)\b")


@cache
def imported_in(file: Path) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
        elif isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
    return names


def imports_of(folder: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(folder.rglob("*.py")):
        yield from ((file.relative_to(ROOT).as_posix(), name) for name in imported_in(file))


def imported_parts(folder: str) -> dict[str, set[str]]:
    """Folders and root modules of the service that a folder imports, with who does."""
    parts: dict[str, set[str]] = {}
    for module, imported in imports_of(SERVICE / folder):
        if imported.startswith("sparklag_service."):
            parts.setdefault(imported.split(".")[1], set()).add(module)
    return parts


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        ("events", set()),
        ("classic", {"background_loop", "events"}),
        ("connect", {"events"}),
        ("lag", {"background_loop"}),
    ],
)
def test_a_folder_of_the_listener_imports_only_lower_ones(folder: str, allowed: set[str]) -> None:
    imported = {
        name.split(".")[1]
        for _, name in imports_of(LISTENER / folder)
        if name.startswith("sparklag_listener.")
    }
    assert imported <= {folder, "errors", "stats"} | allowed


def test_the_root_of_the_listener_has_at_most_ten_modules() -> None:
    assert len(list(LISTENER.glob("*.py"))) <= 10


def test_the_folders_are_the_stages_of_the_picture() -> None:
    folders = {path.name for path in SERVICE.iterdir() if (path / "__init__.py").is_file()}
    assert folders == {*STAGES, *AFTER_VIEW}
    documented = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| `(\w+)/` \|", documented, flags=re.MULTILINE)
    assert rows == [*STAGES, *AFTER_VIEW]


@pytest.mark.parametrize("stage", [*STAGES, *AFTER_VIEW])
def test_a_stage_imports_only_stages_before_it(stage: str) -> None:
    order = (*STAGES, *AFTER_VIEW)
    allowed = {*order[: order.index(stage) + 1]} | (FOR_CLI if stage == "cli" else FOR_STAGES)
    later = {part: who for part, who in imported_parts(stage).items() if part not in allowed}
    assert later == {}


def test_few_modules_stand_at_the_root_of_the_service() -> None:
    assert len(list(SERVICE.glob("*.py"))) <= 10


def test_the_pipeline_only_wires() -> None:
    assert len((SERVICE / "pipeline.py").read_text(encoding="utf-8").splitlines()) <= 200


def test_only_the_kafka_package_speaks_the_protocol() -> None:
    speak = {
        module
        for package in PACKAGES
        if package != "sparklag_kafka"
        for module, imported in imports_of(ROOT / package.removeprefix("sparklag_") / package)
        if WIRE_LIBRARIES.match(imported)
    }
    assert speak == set()


def test_no_modules_import_each_other() -> None:
    graph: dict[str, set[str]] = {}
    for package in PACKAGES:
        for module, imported in imports_of(ROOT / package.removeprefix("sparklag_") / package):
            name = module.split("/", 1)[1].removesuffix(".py").removesuffix("/__init__")
            # A package imports its own modules by its own name.
            if (name := name.replace("/", ".")) != imported:
                graph.setdefault(name, set()).add(imported)

    def circle(module: str, path: tuple[str, ...], done: set[str]) -> tuple[str, ...] | None:
        if module in path:
            return path[path.index(module) :]
        if module in done or module not in graph:
            return None
        done.add(module)
        circles = (circle(imported, (*path, module), done) for imported in sorted(graph[module]))
        return next(filter(None, circles), None)

    done: set[str] = set()
    assert [c for module in sorted(graph) if (c := circle(module, (), done))] == []
