"""Checks the words of the code: how docstrings begin, and words that say too little.

python -m scripts.check_words
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = ("schemas", "kafka", "offsets", "listener", "service", "jobs", "sparklag*")
FRAGMENTS_ALLOWED: Final = 20
PACKAGE_WORDS_ALLOWED: Final = 100
TEST_WORDS_ALLOWED: Final = 300

FRAGMENT: Final = re.compile(r"(Of|By|The same|In the|Both|As|With|Without|For|Where|Whether)\b")
VAGUE: Final = "found|told|heard|said|seen|stands|asked|says|tells"
# A part of a name counts as a word. "Not found" is a term of HTTP and of Python's errors.
WORD: Final = re.compile(
    rf"(?<!not )(?<!not_)(?<![a-z])(?:{VAGUE})(?![a-z])"
    rf"|(?<!Not)(?<=[a-z])(?:{VAGUE.title()})(?![a-z])"
    rf"|(?<![A-Za-z])(?:{VAGUE.title()})(?![a-z])"
)


def fragments(source: str) -> Iterator[tuple[int, str]]:
    """Yields line and first line of each docstring that begins as a fragment of a sentence."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            if FRAGMENT.match(text):
                yield node.body[0].lineno, text.splitlines()[0]


def vague_words(source: str) -> Iterator[tuple[int, str]]:
    """Yields line and text of each vague word in code, names, comments and strings."""
    for number, line in enumerate(source.splitlines(), start=1):
        for match in WORD.finditer(line):
            yield number, f"{match.group()}: {line.strip()}"


def report(kind: str, hits: list[str], allowed: int) -> bool:
    """Writes the count, and each hit beyond what is allowed; returns whether there is one."""
    sys.stderr.write(f"{kind}: {len(hits)} of at most {allowed}\n")
    sys.stderr.writelines(f"  {hit}\n" for hit in hits[allowed:])
    return len(hits) > allowed


def main(root: Path = ROOT) -> int:
    """Returns 0, or 1 where a limit is exceeded."""
    begun: list[str] = []
    words: dict[bool, list[str]] = {False: [], True: []}
    for folder in (*PACKAGES, "tests"):
        for file in sorted(root.glob(f"{folder}/**/*.py")):
            if file.name == "test_check_words.py":
                continue
            name, source = file.relative_to(root), file.read_text(encoding="utf-8")
            in_tests = folder == "tests"
            words[in_tests] += (f"{name}:{line}: {text}" for line, text in vague_words(source))
            if not in_tests:
                begun += (f"{name}:{line}: {text}" for line, text in fragments(source))
    exceeded = [
        report("docstrings that begin as fragments", begun, FRAGMENTS_ALLOWED),
        report("vague words in packages", words[False], PACKAGE_WORDS_ALLOWED),
        report("vague words in tests", words[True], TEST_WORDS_ALLOWED),
    ]
    return int(any(exceeded))


if __name__ == "__main__":
    sys.exit(main())
