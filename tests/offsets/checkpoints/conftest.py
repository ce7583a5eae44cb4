"""A checkpoint of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.offsets.checkpoints.folders import Checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "checkpoint")
