"""Files of a checkpoint, read by way of the JVM."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparklag_listener.classic.running_batch import JvmFiles
from sparklag_offsets.errors import CheckpointAway

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("length", [0, 10, 7_500, 50_001])
def test_a_file_of_any_length_is_read(spark: SparkSession, tmp_path: Path, length: int) -> None:
    content = ("0123456789é\n" * length)[:length].encode()
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_bytes(content)
    for folder in (str(tmp_path), tmp_path.as_uri()):
        assert JvmFiles(spark, folder).read("offsets/0") == content


def test_a_file_that_is_not_there_is_none(spark: SparkSession, tmp_path: Path) -> None:
    assert JvmFiles(spark, str(tmp_path)).read("offsets/0") is None


def test_what_cannot_be_read_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "0").write_text("v1")
    # What Hadoop's local files check each file by.
    (tmp_path / ".0.crc").write_bytes(b"crc\x00\x00\x00\x02\x00wrong")
    with pytest.raises(CheckpointAway, match="0: ") as failure:
        JvmFiles(spark, str(tmp_path)).read("0")
    assert "\n" not in str(failure.value)
