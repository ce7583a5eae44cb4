"""Decompresses the codecs of Kafka's producers into at most a given number of bytes. Pure.

aiokafka's own functions have no bound: some kilobytes may become gigabytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Final

import cramjam  # as aiokafka does

from sparklag_kafka.errors import Undecodable

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

_DECOMPRESS_INTO: Final[dict[int, Callable[[bytes, bytearray], int]]] = {
    GZIP: cramjam.gzip.decompress_into,
    LZ4: cramjam.lz4.decompress_into,
    ZSTD: cramjam.zstd.decompress_into,
}
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_USUAL_RATIO, _MAX_RATIO = 16, 20
_ANY_RATIO_BYTES: Final = 8 * 1024 * 1024  # may come out of however little
_MIN_BUFFER_BYTES: Final = 65_536
_BUFFER_GROWTH: Final = 4


def decompress(codec: int, data: bytes, max_bytes: int) -> bytearray:
    """Decompress `data`; `codec` is its number in Kafka. Raises Undecodable."""
    max_bytes = min(max_bytes, _ANY_RATIO_BYTES + _MAX_RATIO * len(data))
    if codec != SNAPPY and codec not in _DECOMPRESS_INTO:
        raise Undecodable(f"unknown compression codec {codec}")
    try:
        if codec == SNAPPY:
            return _decompress_snappy(data, max_bytes)
        return _decompress_growing(_DECOMPRESS_INTO[codec], data, max_bytes)
    except cramjam.DecompressionError as error:
        raise Undecodable(str(error)) from error


def _decompress_growing(
    decompress_into: Callable[[bytes, bytearray], int], data: bytes, max_bytes: int
) -> bytearray:
    """The decompressed size is not known before, and a buffer of `max_bytes` costs too much."""
    size = min(max_bytes, _MIN_BUFFER_BYTES + _USUAL_RATIO * len(data))
    while True:
        buffer = bytearray(size)
        try:
            del buffer[decompress_into(data, buffer) :]  # no copy
            return buffer
        except cramjam.DecompressionError:
            if size == max_bytes:
                raise
        del buffer
        size = min(max_bytes, size * _BUFFER_GROWTH)


def _decompress_snappy(data: bytes, max_bytes: int) -> bytearray:
    blocks = list(_snappy_blocks(data))
    if sum(map(cramjam.snappy.decompress_raw_len, blocks)) > max_bytes:
        raise Undecodable(f"more than {max_bytes} bytes")
    result = bytearray()
    for block in blocks:
        result += bytes(cramjam.snappy.decompress_raw(block))
    return result


def _snappy_blocks(data: bytes) -> Iterator[bytes]:
    """Java's producers cut the data in blocks, others do not."""
    if not data.startswith(_XERIAL_MAGIC):
        yield data
        return
    stream = BytesIO(data)
    stream.seek(_XERIAL_HEADER_BYTES)
    while prefix := stream.read(4):
        size = int.from_bytes(prefix, "big", signed=True)
        block = stream.read(max(size, 0))
        if len(prefix) < 4 or len(block) != size:
            raise Undecodable("the data ends within a block")
        yield block
