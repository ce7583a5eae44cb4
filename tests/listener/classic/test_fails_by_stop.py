"""A batch that fails because Spark is stopped while it runs."""

from __future__ import annotations

import pytest

from sparklag_listener.classic.queries import fails_by_stop


@pytest.mark.parametrize(
    ("exception", "is_by_stop"),
    [
        # From 90 calls of `spark.stop()` at random moments, Spark 4.0.0.
        ("SparkException: Job 1 cancelled because SparkContext was shut down", True),
        ("IllegalStateException: Cannot call methods on a stopped SparkContext.", True),
        ("IllegalStateException: SparkContext has been shutdown", True),
        ("SparkException: Job 1 cancelled as part of cancellation of all jobs", False),
        ("SparkException: [INTERNAL_ERROR] The Spark SQL phase planning failed", False),
        ("ValueError: this batch breaks", False),
    ],
)
def test_it_is_known_by_its_text(exception: str, is_by_stop: bool) -> None:
    assert fails_by_stop(exception) == is_by_stop
