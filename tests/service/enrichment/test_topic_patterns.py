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
        (r"^\p{Alpha}++$", {"orders", "a" * 40}),
        ("(?i)^NEW-O|^ORDERS$", {"new-orders", "orders"}),
        (r"\Q-e\Eu$|^(?<first>a)\k<first>{39}\z", {"orders-eu", "a" * 40}),
        ("^[^a&&[a-z]]-", set()),
        ("[ab[x-z]]+", {"a" * 40}),
        (r"\0141", {"a" * 40}),
    ],
)
def test_a_pattern_matches_as_in_spark(pattern: str, matched: set[str]) -> None:
    assert match_topics(pattern, _TOPICS) == matched


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"\p{IsGreek}+", r"\p{IsGreek} is not translated"),
        (r"\h+", "bad escape"),
        (r"[\h]", "bad escape"),
        ("a(?i)[^b]", "(?i) is not translated: flags hold for a part of it"),
        ("(" * 5_000 + ")" * 5_000, "recursion"),
        ("(a+)+b$", "it takes longer than 2 s"),
    ],
)
def test_a_pattern_that_cannot_be_matched_says_why(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        match_topics(pattern, _TOPICS)
