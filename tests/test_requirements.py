"""The locked requirements: whole, hashed, and saying nothing about where packages come from."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import tomli
from packaging.requirements import Requirement

from hatch_build import NODE

ROOT = Path(__file__).parent.parent
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
NODE_LOCKS = [*ROOT.glob("web/package-lock.json"), *ROOT.glob("tests/**/package-lock.json")]
PROJECT = tomli.loads((ROOT / "pyproject.toml").read_text())
LANES = {f"spark-{minor}.txt": minor for minor in ("3.5", "4.0", "4.1", "4.3")}
"""The locks of other versions of Spark, and which they are."""
SPARK = {"pyspark", "py4j"}
OF_SPARK = SPARK | {"numpy"}
"""Spark 3.5's client of Connect takes numpy below 2 only."""
APART = {"audit.txt", "docs.txt", "helm.txt", "kubernetes.txt", "sbom.txt"}


def locked(lock: str) -> dict[str, set[str]]:
    """Name to the versions in a lock file; several where they differ by Python version."""
    result: dict[str, set[str]] = {}
    for name, version in re.findall(
        r"^([A-Za-z0-9._-]+)==(\S+)", (ROOT / "requirements" / lock).read_text(), re.MULTILINE
    ):
        result.setdefault(canonical(name), set()).add(version)
    return result


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: str(path.name))
def test_a_lock_file_names_no_address(path: Path) -> None:
    text = path.read_text()
    assert "://" not in text
    assert not re.search(r"^\s*-(-|[if]\b)(?!-hash)(?!hash=)", text, re.MULTILINE)


@pytest.mark.parametrize("path", NODE_LOCKS, ids=lambda path: str(path.parent.name))
def test_a_lock_of_packages_for_node_names_none_either(path: Path) -> None:
    packages = json.loads(path.read_text())["packages"]
    assert not [name for name, package in packages.items() if "resolved" in package]
    assert all("integrity" in package for name, package in packages.items() if name)


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: str(path.name))
def test_every_locked_package_has_a_hash(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if "==" in line and not line.startswith(" "):
            assert following.strip().startswith("--hash=sha256:"), line


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        ("driver.txt", PROJECT["project"]["dependencies"]),
        ("service.txt", PROJECT["project"]["optional-dependencies"]["service"]),
        ("demo.txt", PROJECT["project"]["optional-dependencies"]["demo"]),
        ("dev.txt", PROJECT["dependency-groups"]["dev"]),
        ("build.txt", [*PROJECT["build-system"]["requires"], NODE]),
        *((lane, PROJECT["project"]["dependencies"]) for lane in LANES),
    ],
)
def test_the_lock_satisfies_what_the_project_asks_for(lock: str, wanted: list[str]) -> None:
    versions = locked(lock)
    for requirement in map(Requirement, wanted):
        if requirement.name == PROJECT["project"]["name"]:
            continue
        result = versions.get(canonical(requirement.name))
        assert result, f"{requirement.name} is not in {lock}: make lock"
        assert all(requirement.specifier.contains(v) for v in result), f"{requirement}: make lock"


@pytest.mark.parametrize("lane", LANES)
def test_a_lane_has_its_spark_and_what_a_driver_has(lane: str) -> None:
    versions = locked(lane)
    (spark,) = versions["pyspark"]
    assert spark.startswith(f"{LANES[lane]}.")
    assert locked("driver.txt").keys() | SPARK <= versions.keys()


def test_a_package_has_the_same_versions_in_every_lock() -> None:
    dev = locked("dev.txt")
    for path in LOCKS:
        for name, versions in locked(path.name).items():
            if path.name in LANES and name in OF_SPARK:
                continue
            if path.name in APART and name not in dev:
                continue
            assert versions <= dev[name], f"{name} in {path.name}: make lock"
