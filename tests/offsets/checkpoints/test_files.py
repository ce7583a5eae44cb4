"""A location, written in many ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklag_offsets.checkpoints import normal_location


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("/data/cp", "/data/cp"),
        ("/data/cp/", "/data/cp"),
        ("//data//cp//", "/data/cp"),
        ("file:/data/cp", "/data/cp"),
        ("file:///data/cp/", "/data/cp"),
        ("file://localhost/data/cp", "/data/cp"),
        ("FILE:/data/cp", "/data/cp"),
        ("/data/a b%20c", "/data/a b%20c"),
        ("cp/of/query", "cp/of/query"),
        ("/", "/"),
        ("file:/C:/data/cp", "C:/data/cp"),
        ("file:///C:/data/cp/", "C:/data/cp"),
        ("C:\\data\\cp", "C:/data/cp"),
        ("c:/data/cp", "c:/data/cp"),
        ("s3a://bucket/cp/", "s3://bucket/cp"),
        ("s3n://bucket/cp", "s3://bucket/cp"),
        ("S3://bucket//cp", "s3://bucket/cp"),
        ("s3://bucket/", "s3://bucket"),
        ("hdfs://nn:8020/cp/", "hdfs://nn:8020/cp"),
        ("hdfs:///cp", "hdfs:///cp"),
        ("hdfs:/cp", "hdfs:///cp"),
        ("abfss://box@account.dfs.core.windows.net/cp/", None),
        ("gs://bucket/cp", "gs://bucket/cp"),
    ],
)
def test_the_same_place_has_one_normal_location(written: str, normal: str | None) -> None:
    assert normal_location(written) == (normal or written.rstrip("/"))


@given(
    st.text("abAB:/.*%@ ?", max_size=25).flatmap(
        lambda tail: st.sampled_from(["", "file:", "C:\\", "s3a:", "hdfs:", "webhdfs:", "/"]).map(
            lambda head: head + tail
        )
    )
)
def test_a_normal_location_is_its_own(written: str) -> None:
    once = normal_location(written)
    assert normal_location(once) == once
