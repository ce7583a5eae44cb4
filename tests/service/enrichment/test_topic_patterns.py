"""Patterns as Spark matches them, and those that cannot be matched here."""

from __future__ import annotations

import re

import pytest

from sparklag_service.enrichment.topic_patterns import match_topics

_TOPICS = ["orders", "orders-eu", "new-orders", "a" * 40]


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        # Anywhere in the name, as Spark looks for it.
        ("orders", {"orders", "orders-eu", "new-orders"}),
        ("^orders$", {"orders"}),
        ("^(?!new-).*orders", {"orders", "orders-eu"}),
        ("(?i)EU", {"orders-eu"}),
        (r"[-\[.]e[a-u]", {"orders-eu"}),
        ("returns", set()),
    ],
)
def test_a_pattern_matches_as_in_spark(pattern: str, matched: set[str]) -> None:
    assert match_topics(pattern, _TOPICS) == matched


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"\p{Alpha}+", "bad escape"),
        ("[a-z&&[^b]]", "a set in a set"),
        ("[ab[x-z]]+", "a set in a set"),
        (r"\0141", r"\0"),
        ("(" * 5_000 + ")" * 5_000, "recursion"),
        ("(a+)+b$", "it takes longer than 2 s"),
    ],
)
def test_a_pattern_that_cannot_be_matched_says_why(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        match_topics(pattern, _TOPICS)
