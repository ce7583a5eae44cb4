"""Compressed data comes out whole, and never larger than the limit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import aiokafka.codec
import pytest

from sparklag_kafka.errors import Undecodable
from sparklag_kafka.protocol.record_batches import decompress
from tests.kafka.batches import CODECS


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("size", [0, 1, 65_535, 65_537, 300_000, 3_000_000])
def test_what_compresses_well_comes_out_whole(codec: str, size: int) -> None:
    compress: Callable[[bytes], bytes] = getattr(aiokafka.codec, f"{codec}_encode")
    compressed = compress(bytes(size))
    assert decompress(CODECS[codec], compressed, max(size, 1)) == bytes(size)
    if size:
        with pytest.raises(Undecodable):
            decompress(CODECS[codec], compressed, size - 1)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("data", [b"", b"\x82SNAPPY\x00" + bytes(9), b"no such thing" * 9])
def test_uncompressed_data_is_refused_or_empty(codec: int, data: bytes) -> None:
    with suppress(Undecodable):
        assert decompress(codec, data, 1_000) == b""


def test_an_unknown_codec_is_reported() -> None:
    with pytest.raises(Undecodable, match="codec 7"):
        decompress(7, b"", 1_000)
