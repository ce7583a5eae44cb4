"""The files of a checkpoint, parsed: real ones, made ones, cut ones, and anything at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklag_offsets.checkpoints.offset_log import (
    OffsetFile,
    parse_batch_id,
    parse_commit,
    parse_initial_offsets,
    parse_metadata,
    parse_offsets,
)
from sparklag_offsets.errors import CheckpointError, MalformedCheckpoint, UnsupportedCheckpoint
from sparklag_schemas import Offsets
from tests import samples
from tests.offsets.checkpoints.folders import COMMIT, Line, v1, v2

topics = st.text(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", min_size=1, max_size=20
)
offsets: st.SearchStrategy[Offsets] = st.dictionaries(
    topics,
    st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), min_size=1, max_size=5),
    min_size=1,
    max_size=4,
)
lines: st.SearchStrategy[Line] = st.one_of(offsets, st.integers(0, 2**63), st.none())


def kafka(file: OffsetFile) -> dict[int, Offsets | None]:
    return {source: line.kafka for source, line in file.lines.items()}


@given(st.lists(lines, min_size=1, max_size=6), st.booleans())
def test_files_of_the_first_format_are_read(written: list[Line], is_continuous: bool) -> None:
    file = parse_offsets(v1(*written, continuous=is_continuous), "offsets/7")
    assert kafka(file) == {
        source: line if isinstance(line, dict) else None for source, line in enumerate(written)
    }
    assert [line.is_absent for line in file.lines.values()] == [line is None for line in written]
    assert file.is_continuous is is_continuous


@given(st.dictionaries(st.integers(0, 50), lines, min_size=1, max_size=6))
def test_files_of_the_second_format_are_read_in_any_order(written: dict[int, Line]) -> None:
    # A dictionary that was made at random has no order either.
    file = parse_offsets(v2({str(key): line for key, line in written.items()}), "offsets/7")
    assert kafka(file) == {
        source: line if isinstance(line, dict) else None for source, line in written.items()
    }
    assert list(file.lines) == sorted(written)
    assert all(file.lines[n].is_absent == (line is None) for n, line in written.items())
    assert file.names is None


@given(st.lists(lines, min_size=1, max_size=4), st.data())
def test_a_file_cut_anywhere_is_broken_or_reports_the_same_of_the_sources_it_names(
    written: list[Line], data: st.DataObject
) -> None:
    versions = (v1(*written), v2({str(number): line for number, line in enumerate(written)}))
    for content in versions:
        whole = kafka(parse_offsets(content, "offsets/7"))
        cut = data.draw(st.integers(0, len(content) - 1))
        try:
            file = parse_offsets(content[:cut], "offsets/7")
        except CheckpointError:
            continue
        for source, result in kafka(file).items():
            assert result is None or result == whole[source]
            # A number may have lost digits: that is no source of Kafka's.
            assert isinstance(written[source], int | None) or result == whole[source]


def test_every_cut_of_a_real_file_is_broken() -> None:
    content = v1({"orders": {0: 12, 1: 8}})
    for cut in range(len(content)):
        with pytest.raises(MalformedCheckpoint, match="offsets/7"):
            parse_offsets(content[:cut], "offsets/7")


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_nesting_without_an_end_is_no_more_than_a_broken_line(opening: bytes) -> None:
    for content in (b"v1\n\n" + opening * 100_000, b"v1\n" + opening * 100_000 + b"\n0"):
        with pytest.raises(MalformedCheckpoint):
            parse_offsets(content, "offsets/7")


@pytest.mark.parametrize(
    "line",
    [
        *(source["line"].encode() for source in samples.OTHER_SOURCES.values()),
        b'{"orders":5}',
        b'{"orders":{}}',
        b'{"orders":{"a":5}}',
        b'{"orders":{"-1":5}}',
        b'{"orders":{"01":5}}',
        b'{"orders":{"0":-1}}',
        b'{"orders":{"0":1.5}}',
        b'{"orders":{"0":true}}',
        b'{"orders":{"0":null}}',
        b'{"orders":{"0":9223372036854775808}}',
        '{"orders":{"٣":5}}'.encode(),
        b'{"":{"0":5}}',
        b"{}",
        b"[1,2]",
        b"not JSON at all",
    ],
)
def test_what_has_not_exactly_the_shape_of_kafkas_offsets_is_another_source(line: bytes) -> None:
    file = parse_offsets(b"v1\n{}\n" + line + b'\n{"orders":{"0":5}}', "offsets/7")
    assert kafka(file) == {0: None, 1: {"orders": {0: 5}}}


def test_named_sources_are_numbered_by_their_names() -> None:
    file = parse_offsets(v2({"b": {"x": {0: 2}}, "a": {"y": {0: 1}}}), "offsets/7")
    assert kafka(file) == {0: {"y": {0: 1}}, 1: {"x": {0: 2}}}
    assert file.names == ("a", "b")


def test_sources_may_have_numbers_as_names() -> None:
    lines: dict[str, Line] = {"7": {"x": {0: 2}}, "10": {"y": {0: 1}}}
    assert kafka(parse_offsets(v2(lines), "offsets/7")) == {7: {"x": {0: 2}}, 10: {"y": {0: 1}}}
    file = parse_offsets(v2(lines, named=True), "offsets/7")
    assert kafka(file) == {0: {"y": {0: 1}}, 1: {"x": {0: 2}}}
    assert file.names == ("10", "7")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"v1",
        b"v1\n",
        b"v1\n{}",
        b"v1\n{}\n",
        b"v1\n[]\n0",
        b"v1\n{\n0",
        b"v1\n\n",
        b'v1\n{}\n{"a":{"0":5}}\n\n',
        b'v1\n{}\n\n{"a":{"0":5}}',
        b'v1\n{}\n{"a":{"0":5}} {}',
        b"v2\n{}\n0",
        b"v2\n{}\n:0",
        b"v2\n{}\n0:1\n0:2",
        b"v2\n{}\n0:",
        b"<html>",
        b"v\n{}\n0",
        b"version\n{}\n0",
    ],
)
def test_what_spark_does_not_write_is_refused_with_the_files_name(content: bytes) -> None:
    with pytest.raises(MalformedCheckpoint, match="offsets/7"):
        parse_offsets(content, "offsets/7")


@pytest.mark.parametrize(
    "content",
    [
        v1({"orders": {0: 12}}, 7),
        v1({"orders": {0: 12}}, continuous=True),
        v2({"0": {"orders": {0: 12}}, "1": 7}),
    ],
)
def test_line_ends_and_spaces_are_read_as_spark_reads_them(content: bytes) -> None:
    expected = parse_offsets(content, "offsets/7")
    for end in (b"\n", b"\r\n", b"\r"):
        changed = content.replace(b"\n", end)
        assert parse_offsets(changed, "offsets/7") == expected
        assert parse_offsets(changed + end, "offsets/7") == expected
        with pytest.raises(MalformedCheckpoint):  # a blank line is one more source
            parse_offsets(changed + end + end, "offsets/7")
        parse_commit(COMMIT.replace(b"\n", end) + end, "commits/7")
    assert parse_offsets(content.replace(b"{}", b" {} "), "offsets/7") == expected
    spaced = content.replace(b'{"orders":{"0":12}}', b' { "orders" : {"0": 12} } ')
    assert parse_offsets(spaced, "offsets/7") == expected


def test_a_format_from_the_future_is_refused_with_its_number() -> None:
    with pytest.raises(UnsupportedCheckpoint, match=r"x/7 has format v3, .* reads v1 and v2"):
        parse_offsets(b"v3\n{}\n0", "x/7")


def test_commits_of_every_version_are_read() -> None:
    parse_commit(COMMIT, "commits/7")
    parse_commit(b'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":[["a"]]}}\n', "commits/7")
    parse_commit(b'v3\n{"nextBatchWatermarkMs":0,"sinks":[]}', "commits/7")
    for content in (b"v1", b"v1\n", b" v1\t\r\n{}\r\n"):  # Spark takes each for a commit
        parse_commit(content, "commits/7")
    for cut in (0, 1, *range(4, len(COMMIT))):
        with pytest.raises(MalformedCheckpoint, match="commits/7"):
            parse_commit(COMMIT[:cut], "commits/7")


def test_the_query_id_is_read_whatever_else_later_versions_write() -> None:
    assert parse_metadata(b'{"id":"a-b","version":2,"more":{}}', "metadata") == "a-b"
    for content in (b"", b'{"id":"a', b'{"id":5}', b'{"id":""}', b"[]", b'{"name":"x"}', b"\xff"):
        with pytest.raises(MalformedCheckpoint, match="metadata holds no query id"):
            parse_metadata(content, "metadata")


def test_where_a_kafka_source_began_is_read() -> None:
    content = b'\0v1\n{"orders":{"1":7,"0":0}}'
    assert parse_initial_offsets(content, "sources/0/0") == {"orders": {0: 0, 1: 7}}
    assert parse_initial_offsets(b'v1\n{"path":"file:/x"}', "sources/1/0") is None
    for cut in range(1, len(content)):
        with pytest.raises(MalformedCheckpoint, match="sources/0/0"):
            parse_initial_offsets(content[:cut], "sources/0/0")
    with pytest.raises(UnsupportedCheckpoint, match="sources/0/0 has format v3"):
        parse_initial_offsets(b"\0v3\n{}", "sources/0/0")


def test_only_names_of_digits_are_batches() -> None:
    assert [parse_batch_id(name) for name in ("0", "17", "100")] == [0, 17, 100]
    others = (".5.crc", "5.tmp", ".5.a1b2.tmp", "05", "-1", "5 ", "٣", "", "5.compact", "9" * 30)
    for name in others:
        assert parse_batch_id(name) is None
