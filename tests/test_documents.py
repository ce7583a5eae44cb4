"""The documents: their links, their sizes, and the commands, settings and snippets they show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pytest

ROOT: Final = Path(__file__).parents[1]
DOCUMENTS: Final = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / name / "README.md" for name in ("benchmarks", "deploy", "examples")),
        *(ROOT / "tests").rglob("README.md"),
    ]
)
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_BLOCK: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_CODE: Final = re.compile(r"(`+).+?\1", re.DOTALL)
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
_HEADING: Final = re.compile(r"^#+ +(.+?)$", re.MULTILINE)

each_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


def prose(document: Path) -> str:
    """The text without comments and blocks of code."""
    text = _COMMENT.sub("", document.read_text(encoding="utf-8"))
    return _BLOCK.sub("", text)


def links(document: Path) -> Iterator[str]:
    for match in _LINK.finditer(_CODE.sub("", prose(document))):
        yield match[1] or match[2]


def anchors(document: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in _HEADING.findall(prose(document)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        count = sum(1 for anchor in found if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", anchor))
        found.add(f"{slug}-{count}" if count else slug)
    return found


@each_document
def test_every_link_leads_to_a_file_and_a_heading(document: Path) -> None:
    for link in links(document):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = document.parent / path if path else document
        assert target.exists(), f"{link}: no such file"
        if anchor:
            assert anchor in anchors(target), f"{link}: no such heading"
