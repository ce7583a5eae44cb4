"""Files are read again when they change, and a failed reading is tried again."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklag_schemas import SettingsError
from sparklag_schemas.runtime.reloading import Reloaded


def test_a_change_counts_once_it_can_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, is_locked = tmp_path / "file", False
    file.write_text("old")

    def load() -> str:
        if is_locked:
            raise SettingsError("it cannot be read")
        return file.read_text()

    reloaded = Reloaded(load, [str(file), None])
    is_locked = True
    file.write_text("newer")
    assert [reloaded.refresh(), reloaded.refresh()] == ["old", "old"]
    assert caplog.messages == ["it cannot be read; what was read before stays in force"]
    is_locked = False
    assert reloaded.refresh() == "newer"
