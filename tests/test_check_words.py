"""`make lint` refuses docstrings that begin as fragments, and counts vague words."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import check_words
from scripts.check_words import fragments, vague_words


def test_a_docstring_that_begins_as_a_fragment_is_reported_with_its_line() -> None:
    source = '''"""Offsets."""
class Reader:
    """For the tests."""
    def read(self):
        """Returns the offsets."""
    async def close(self):
        """The same,
        without waiting."""
'''
    assert [*fragments(source)] == [(3, "For the tests."), (7, "The same,")]


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("found = told.heard", 3),
        ("def test_it_is_seen() -> None:", 1),
        ("class LastSeen(Said):", 2),
        ("# Kafka says so, and tells why.", 2),
        ("raise FileNotFoundError(HTTP_404_NOT_FOUND)  # not found", 0),
        ("profound = founded = aforesaid = understands", 0),
    ],
)
def test_vague_words_are_counted_in_names_and_comments(line: str, count: int) -> None:
    assert [number for number, _ in vague_words(f"\n{line}\n")] == [2] * count


def test_the_check_fails_beyond_a_limit_and_names_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "kafka" / "sparklag_kafka" / "reader.py"
    module.parent.mkdir(parents=True)
    module.write_text('"""Reads."""\n\nfound = 1\nseen = 2\n')
    assert check_words.main(tmp_path) == 0
    monkeypatch.setattr(check_words, "PACKAGE_WORDS_ALLOWED", 1)
    assert check_words.main(tmp_path) == 1
    output = capsys.readouterr().err
    assert "vague words in packages: 2 of at most 1\n" in output
    assert "  kafka/sparklag_kafka/reader.py:4: seen: seen = 2\n" in output
    assert "reader.py:3" not in output
