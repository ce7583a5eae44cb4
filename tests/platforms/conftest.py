"""What the platforms share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.clean_environment import ROOT, Environment, succeed


@pytest.fixture(scope="session")
def driver_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment with sparklag, and without Spark."""
    folder = tmp_path_factory.mktemp("driver")
    succeed(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    return Environment(folder / "environment", "driver.txt", wheel).python.parents[1]
